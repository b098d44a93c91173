// Changes of the layout: put, delete, rename, metadata, plan, refresh, compact.
#include "boundary.h"

using namespace st;
using namespace st::capi;

static_assert(store::CommitPlan::nothing == ST_PLAN_NOTHING && store::CommitPlan::patch == ST_PLAN_PATCH &&
              store::CommitPlan::publish == ST_PLAN_PUBLISH);

st_plan capi::translate(const store::CommitPlan &planned) {
  st_plan plan{};
  plan.kind = planned.kind;
  plan.file_size = planned.file_size;
  plan.data_offset = planned.data_offset;
  plan.bytes_written = planned.cost.written;
  plan.bytes_shared = planned.cost.shared;
  plan.bytes_copied = planned.cost.copied;
  plan.space_needed = planned.space_needed;
  plan.space_free = planned.space_free;
  copy_text(plan.how, planned.how);
  return plan;
}

st_status st_txn_put(st_txn *txn, const char *name, size_t name_len, const st_tensor *value) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_txn_put", name, value));
    auto transaction = going_on("st_txn_put", txn);
    if (!transaction) return Failure(std::move(transaction.error()));
    auto bytes = translate(value);
    if (!bytes) return Failure(std::move(bytes.error()));
    return (*transaction)->put(name_of(name, name_len), *bytes);
  });
}

st_status st_txn_delete(st_txn *txn, const char *name, size_t name_len) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_txn_delete", name));
    auto transaction = going_on("st_txn_delete", txn);
    if (!transaction) return Failure(std::move(transaction.error()));
    return (*transaction)->remove(name_of(name, name_len));
  });
}

st_status st_txn_rename(st_txn *txn, const char *from, size_t from_len, const char *to, size_t to_len) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_txn_rename", from, to));
    auto transaction = going_on("st_txn_rename", txn);
    if (!transaction) return Failure(std::move(transaction.error()));
    return (*transaction)->rename(name_of(from, from_len), name_of(to, to_len));
  });
}

st_status st_txn_set_metadata(st_txn *txn, const char *key, size_t key_len, const char *value, size_t value_len) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_txn_set_metadata", key));
    auto transaction = going_on("st_txn_set_metadata", txn);
    if (!transaction) return Failure(std::move(transaction.error()));
    if (!value) return (*transaction)->set_metadata(name_of(key, key_len), std::nullopt);
    return (*transaction)->set_metadata(name_of(key, key_len), name_of(value, value_len));
  });
}

st_status st_txn_plan(st_txn *txn, st_plan *out) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_txn_plan", out));
    auto transaction = going_on("st_txn_plan", txn);
    if (!transaction) return Failure(std::move(transaction.error()));
    auto planned = (*transaction)->plan();
    if (!planned) return Failure(std::move(planned.error()));
    return write_result(out, translate(*planned));
  });
}

st_status st_refresh(st_file *file) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_refresh", file));
    return file->collection->refresh();
  });
}

st_status st_compact(const char *path, const st_txn_options *opts) {
  return boundary([&]() -> Result<void> {
    ST_CAPI_TRY(require("st_compact", path));
    auto o = read_options(opts);
    if (!o) return Failure(std::move(o.error()));
    auto options = translate("st_compact", *o);
    if (!options) return Failure(std::move(options.error()));
    options->compact = true;
    options->layout = write::Layout::canonical;
    store::OpenOptions open;
    open.writable = true;
    open.map = read::MapMode::none;
    open.lock_timeout_ms = options->lock_timeout_ms;
    open.progress = options->progress;
    auto collection = store::Collection::open(os::Env::posix(), path, std::move(open));
    if (!collection) return Failure(std::move(collection.error()));
    auto transaction = (*collection)->begin(std::move(*options));
    if (!transaction) return Failure(std::move(transaction.error()));
    return (*transaction)->commit();
  });
}
