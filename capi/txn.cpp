// Updates and transactions.
#include "boundary.h"

using namespace st;
using namespace st::capi;

namespace st::capi {

Result<store::TransactionOptions> translate(const char *call, const st_txn_options &o) {
  constexpr uint32_t known = ST_TXN_COPY | ST_COMMIT_PUBLISH | ST_TXN_BREAK_LINKS | ST_TXN_NEW_NAMES;
  if (o.flags & ~known)
    return fail(Status::unsupported, call, " was given a flag that libst ", st_version(), " does not know");
  if (o.layout > ST_LAYOUT_CANONICAL)
    return fail(Status::invalid_argument, "st_txn_options.layout is ", o.layout,
                "; it takes ST_LAYOUT_KEEP or _CANONICAL");
  store::TransactionOptions options;
  options.copy = o.flags & ST_TXN_COPY;
  options.lock_timeout_ms = o.lock_timeout_ms;
  options.progress = progress_of(o.progress, o.progress_user);
  options.publish = o.flags & ST_COMMIT_PUBLISH;
  options.break_links = o.flags & ST_TXN_BREAK_LINKS;
  options.new_names = o.flags & ST_TXN_NEW_NAMES;
  options.shard_grace_s = o.shard_grace_s;
  options.layout = static_cast<write::Layout>(o.layout);
  options.align = true;
  options.alignment = o.alignment;
  options.reserve = o.header_reserve;
  return options;
}

Result<store::NewBytes> translate(const st_tensor *value) {
  if (value->rank > 0 && !value->shape)
    return fail(Status::invalid_argument, "the new value has rank ", value->rank, " but no shape");
  if (value->nbytes > 0 && !value->data)
    return fail(Status::invalid_argument, "the new value has ", value->nbytes, " bytes but no data");
  return store::NewBytes{value->dtype, {value->shape, value->rank}, value->data, value->nbytes};
}

}  // namespace st::capi

namespace {

void forget(st_txn *txn) {
  std::lock_guard lock(txn->file->mutex);
  std::erase(txn->file->transactions, txn);
}

void free_txn(st_txn *txn) {
  forget(txn);
  delete txn;
}

}  // namespace

void st_txn_options_init(st_txn_options *out, size_t size) {
  init_struct(out, size, st_txn_options ST_TXN_OPTIONS_INIT);
}

st_status st_update_n(st_file *file, const char *name, size_t name_len, const st_tensor *value) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_update", file, name, value));
    auto bytes = translate(value);
    if (!bytes) return Failure(std::move(bytes.error()));
    store::TransactionOptions options;
    options.lock_timeout_ms = file->collection->options().lock_timeout_ms;
    options.progress = file->collection->options().progress;
    auto transaction = file->collection->begin(std::move(options));
    if (!transaction) return Failure(std::move(transaction.error()));
    ST_CAPI_TRY((*transaction)->update({name, name_len}, *bytes));
    return (*transaction)->commit();
  });
}

st_status st_update(st_file *file, const char *name, const st_tensor *value) {
  return st_update_n(file, name, length(name), value);
}

st_status st_begin(st_file *file, const st_txn_options *opts, st_txn **out) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_begin", file, out));
    auto o = read_options(opts, st_txn_options ST_TXN_OPTIONS_INIT);
    if (!o) return Failure(std::move(o.error()));
    auto options = translate("st_begin", *o);
    if (!options) return Failure(std::move(options.error()));
    auto transaction = file->collection->begin(std::move(*options));
    if (!transaction) return Failure(std::move(transaction.error()));
    auto txn = std::make_unique<st_txn>(st_txn{file, std::move(*transaction)});
    std::lock_guard lock(file->mutex);
    file->transactions.push_back(txn.get());
    *out = txn.release();
    return {};
  });
}

st_status st_txn_update_n(st_txn *txn, const char *name, size_t name_len, const st_tensor *value) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_txn_update", txn, name, value));
    auto bytes = translate(value);
    if (!bytes) return Failure(std::move(bytes.error()));
    return txn->transaction->update({name, name_len}, *bytes);
  });
}

st_status st_txn_update(st_txn *txn, const char *name, const st_tensor *value) {
  return st_txn_update_n(txn, name, length(name), value);
}

st_status st_commit(st_txn *txn) {
  if (!txn)
    return set_last_error(Status::invalid_argument, "st_commit was given NULL where that is not allowed; see st.h");
  const st_status status = boundary([&] { return txn->transaction->commit(); });
  if (status != ST_E_BUSY) free_txn(txn);
  return status;
}

void st_abort(st_txn *txn) {
  if (txn) free_txn(txn);
}
