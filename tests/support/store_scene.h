// A file with three tensors, handles on it, and updates in one line.
#pragma once

#include "crash_scene.h"
#include "fault_env.h"
#include "file/data_file.h"
#include "file/transaction.h"

namespace st::testing {

using store::DataFile;
using store::NewBytes;
using store::OpenOptions;
using store::Transaction;
using store::TransactionOptions;

class StoreScene : public CrashScene {
 protected:
  static OpenOptions writable() {
    OpenOptions options;
    options.writable = true;
    return options;
  }
  std::unique_ptr<DataFile> open(OpenOptions options = writable()) { return open(env, std::move(options)); }
  std::unique_ptr<DataFile> open(os::Env &with, OpenOptions options = writable()) {
    return open_path(with, path, std::move(options));
  }
  static std::unique_ptr<DataFile> open_path(os::Env &with, const std::string &where,
                                             OpenOptions options = writable()) {
    auto opened = DataFile::open(with, where, std::move(options));
    EXPECT_TRUE(is_ok(opened)) << where;
    return opened ? std::move(*opened) : nullptr;
  }
  static std::unique_ptr<Transaction> begin(DataFile &c, TransactionOptions options = {}) {
    auto begun = Transaction::begin(c, std::move(options));
    EXPECT_TRUE(is_ok(begun));
    return begun ? std::move(*begun) : nullptr;
  }
  // The bytes as a value of that tensor.
  static NewBytes value(const DataFile &c, std::string_view name, const std::string &bytes) {
    const Index &index = c.snapshot().header.index;
    const TensorView t = index.at(index.find(name).value());
    return {static_cast<uint32_t>(t.dtype), t.shape, bytes.data(), bytes.size()};
  }
  static Result<void> update(DataFile &c, std::string_view name, const std::string &bytes,
                             TransactionOptions options = {}) {
    auto begun = Transaction::begin(c, std::move(options));
    if (!begun) return Failure(std::move(begun.error()));
    if (auto staged = (*begun)->update(name, value(c, name, bytes)); !staged) return staged;
    return (*begun)->commit();
  }
  static std::string seen(const DataFile &c, std::string_view name) {
    const store::Snapshot &s = c.snapshot();
    const size_t i = s.header.index.find(name).value();
    auto view = c.view(s, i);
    EXPECT_TRUE(is_ok(view));
    return {reinterpret_cast<const char *>(*view), static_cast<size_t>(s.header.index.at(i).nbytes)};
  }

  const std::string new_a = pattern(4000, 71), new_b = pattern(10007, 72), new_c = pattern(3000, 73);
};

}  // namespace st::testing
