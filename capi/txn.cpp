// Updates and transactions.
#include "base/joined_progress.h"
#include "boundary.h"

using namespace st;
using namespace st::capi;

namespace st::capi {

Result<store::TransactionOptions> translate(const char *call, const st_txn_options &o, int32_t default_timeout_ms) {
  constexpr uint32_t known = ST_TXN_COPY | ST_TXN_PUBLISH | ST_TXN_BREAK_LINKS | ST_TXN_NEW_NAMES | ST_TXN_JOURNAL_ONLY;
  if (o.flags & ~known)
    return fail(Status::unsupported, call, " was given a flag that libst ", st_version(), " does not know");
  if (o.layout > ST_LAYOUT_STOCK)
    return fail(Status::unsupported, "st_txn_options.layout is ", o.layout, ", which libst ", st_version(),
                " does not know; it takes ST_LAYOUT_KEEP or _CANONICAL");
  if (o.layout == ST_LAYOUT_STOCK)
    return fail(Status::invalid_argument, "st_txn_options.layout is ", o.layout,
                "; it takes ST_LAYOUT_KEEP or _CANONICAL");
  store::TransactionOptions options;
  ST_TRY(options.lock_timeout_ms, timeout_of(o.lock_timeout_ms, default_timeout_ms));
  options.copy = o.flags & ST_TXN_COPY;
  options.progress = progress_of(o.progress, o.progress_user);
  options.journal_only = o.flags & ST_TXN_JOURNAL_ONLY;
  options.publish = o.flags & ST_TXN_PUBLISH;
  options.break_links = o.flags & ST_TXN_BREAK_LINKS;
  options.new_names = o.flags & ST_TXN_NEW_NAMES;
  options.shard_grace_s = o.shard_grace_s == ST_GRACE_DEFAULT ? store::default_shard_grace_s
                          : o.shard_grace_s == ST_GRACE_NONE  ? 0
                                                              : o.shard_grace_s;
  options.layout = static_cast<write::Layout>(o.layout);
  options.align = true;
  options.alignment = o.alignment;
  options.reserve = o.header_reserve;
  return options;
}

Result<void> check_reserved(const st_tensor &value) {
  if (value.reserved0 == 0 && value.reserved[0] == 0 && value.reserved[1] == 0) return {};
  return fail(Status::unsupported, "a reserved field of an st_tensor is not zero, and libst ", st_version(),
              " does not know what that means; zero the struct before it is set up");
}

Result<store::NewBytes> translate(std::string_view name, const st_tensor *value) {
  if (auto fits = check_reserved(*value); !fits) return Failure(std::move(fits.error()).about_tensor(name));
  const auto refuse = [&](const auto &...parts) {
    return Failure(error(Status::invalid_argument, "the new value of tensor ", in_quotes(name), " has ", parts...)
                       .about_tensor(name));
  };
  if (value->rank > 0 && !value->shape) return refuse("rank ", value->rank, " but no shape");
  if (value->nbytes > 0 && !value->data) return refuse(value->nbytes, " bytes but no data");
  if (!has_addresses(value->nbytes)) return refuse(value->nbytes, " bytes, more than this machine has addresses");
  return store::NewBytes{value->dtype, {value->shape, value->rank}, value->data, value->nbytes};
}

Result<store::AnyTransaction *> going_on(const char *call, st_txn *txn) {
  ST_TRY(require(call, txn));
  if (!txn->transaction)
    return fail(Status::txn_failed, call, " was given a transaction that has ended; free it and begin another");
  return txn->transaction.get();
}

}  // namespace st::capi

st_status st_update(st_file *file, const char *name, size_t name_len, const st_tensor *value) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_update", file, name, value));
    ST_TRY(auto bytes, translate(name_of(name, name_len), value));
    store::TransactionOptions options;
    options.lock_timeout_ms = file->model->options().lock_timeout_ms;
    // The bytes are staged, and then committed.
    JoinedProgress joined(file->model->options().progress, 2 * bytes.nbytes);
    options.progress = joined.of_part();
    ST_TRY(auto transaction, file->model->begin(std::move(options)));
    joined.begin_part(bytes.nbytes);
    ST_TRY(transaction->update(name_of(name, name_len), bytes));
    joined.begin_part(bytes.nbytes);
    return transaction->commit();
  });
}

st_status st_txn_begin(st_file *file, const st_txn_options *opts, st_txn **out) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_txn_begin", file, out));
    ST_TRY(auto o, read_options(opts));
    const store::OpenOptions &of_file = file->model->options();
    ST_TRY(auto options, translate("st_txn_begin", o, of_file.lock_timeout_ms));
    if (!options.progress) options.progress = of_file.progress;
    ST_TRY(auto transaction, file->model->begin(std::move(options)));
    auto txn = std::make_unique<st_txn>(st_txn{file, std::move(transaction), os::MadeIn(os::Env::posix())});
    const auto lock = lock_transactions();
    file->transactions.push_back(txn.get());
    *out = txn.release();
    return {};
  });
}

st_status st_txn_update(st_txn *txn, const char *name, size_t name_len, const st_tensor *value) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_txn_update", name, value));
    ST_TRY(auto transaction, going_on("st_txn_update", txn));
    ST_TRY(auto bytes, translate(name_of(name, name_len), value));
    return transaction->update(name_of(name, name_len), bytes);
  });
}

st_status st_txn_update_slice(st_txn *txn, const char *name, size_t name_len, const st_range *ranges, size_t n,
                              const int64_t *indices, size_t index_count, const st_tensor *value) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_txn_update_slice", name, value));
    if (n > 0) ST_TRY(require("st_txn_update_slice", ranges));
    if (index_count > 0) ST_TRY(require("st_txn_update_slice", indices));
    ST_TRY(check_count<int64_t>("st_txn_update_slice", "indices", index_count));
    ST_TRY(auto transaction, going_on("st_txn_update_slice", txn));
    ST_TRY(auto bytes, translate(name_of(name, name_len), value));
    TensorPart part{ranges_of(ranges, n)};
    if (indices) part.rows = std::span(indices, index_count);
    return transaction->update_slice(name_of(name, name_len), part, bytes);
  });
}

st_status st_txn_commit(st_txn *txn) {
  const st_status status = boundary([&]() -> Result<void> {
    ST_TRY(auto transaction, going_on("st_txn_commit", txn));
    return transaction->commit();
  });
  if (txn && status != ST_E_BUSY) txn->transaction.reset();
  return status;
}

st_status st_sync(st_file *file) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_sync", file));
    return file->model->sync();
  });
}

void st_txn_free(st_txn *txn) {
  if (!txn) return;
  if (txn->file) {
    const auto lock = lock_transactions();
    std::erase(txn->file->transactions, txn);
  }
  txn->end();
  delete txn;
}
