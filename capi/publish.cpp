// Changes of the layout: put, delete, rename, metadata, plan, refresh, compact.
#include "boundary.h"
#include "engine/open.h"

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
  plan.bytes_shared = planned.cost.shared - planned.cost.staged_shared;
  plan.bytes_copied = planned.cost.copied - planned.cost.staged_copied;
  plan.space_needed = planned.space_needed;
  plan.space_free = planned.space_free;
  copy_text(plan.how, planned.how);
  return plan;
}

st_status st_txn_put(st_txn *txn, const char *name, size_t name_len, const st_tensor *value) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_txn_put", name, value));
    ST_TRY(auto transaction, going_on("st_txn_put", txn));
    ST_TRY(auto bytes, translate(name_of(name, name_len), value));
    return transaction->put(name_of(name, name_len), bytes);
  });
}

st_status st_txn_delete(st_txn *txn, const char *name, size_t name_len) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_txn_delete", name));
    ST_TRY(auto transaction, going_on("st_txn_delete", txn));
    return transaction->remove(name_of(name, name_len));
  });
}

st_status st_txn_rename(st_txn *txn, const char *from, size_t from_len, const char *to, size_t to_len) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_txn_rename", from, to));
    ST_TRY(auto transaction, going_on("st_txn_rename", txn));
    return transaction->rename(name_of(from, from_len), name_of(to, to_len));
  });
}

st_status st_txn_set_metadata(st_txn *txn, const char *key, size_t key_len, const char *value, size_t value_len) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_txn_set_metadata", key));
    ST_TRY(auto transaction, going_on("st_txn_set_metadata", txn));
    if (!value && value_len == ST_NTS) return transaction->set_metadata(name_of(key, key_len), std::nullopt);
    if (!value && value_len > 0)
      return fail(Status::invalid_argument, "st_txn_set_metadata was given ", value_len,
                  " bytes at NULL; NULL with ST_NTS removes the key, NULL with 0 is the empty value");
    return transaction->set_metadata(name_of(key, key_len), value ? name_of(value, value_len) : "");
  });
}

st_status st_txn_plan(st_txn *txn, st_plan *out) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_txn_plan", out));
    ST_TRY(auto transaction, going_on("st_txn_plan", txn));
    ST_TRY(auto planned, transaction->plan());
    return write_result(out, translate(planned));
  });
}

st_status st_refresh(st_file *file) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_refresh", file));
    return file->model->refresh();
  });
}

st_status st_compact(const char *path, const st_txn_options *opts) {
  return boundary([&]() -> Result<void> {
    ST_TRY(require("st_compact", path));
    ST_TRY(auto o, read_options(opts));
    o.layout = ST_LAYOUT_CANONICAL;  // whatever was given
    ST_TRY(auto options, translate("st_compact", o));
    store::OpenOptions open;
    open.writable = true;
    open.map = read::MapMode::none;
    open.lock_timeout_ms = options.lock_timeout_ms;
    open.progress = options.progress;
    ST_TRY(auto model, store::open_path(os::Env::posix(), path, std::move(open)));
    return model->compact(std::move(options));
  });
}
