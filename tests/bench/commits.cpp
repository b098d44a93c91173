// What one small durable change costs, beside databases that promise the same.
//   commits_bench FILE TENSOR ROUNDS FOLDER
// Prints "<what> <nanoseconds>" a line, all by turns:
//   raw      pwrite + fdatasync
//   libst    st_update
//   journal  a transaction with ST_TXN_JOURNAL_ONLY
//   follow   the st_sync after it
//   sqlite   an UPDATE of a blob (WAL, synchronous=FULL)
//   lmdb     a put and its commit
// A peer that was not there when this was built is left out. The databases lie in FOLDER, with the bytes of the tensor
// as their only value.
#include <fcntl.h>
#include <unistd.h>

#ifdef ST_BENCH_SQLITE
#include <sqlite3.h>
#endif
#ifdef ST_BENCH_LMDB
#include <lmdb.h>
#endif

#include <cstring>
#include <string>
#include <vector>

#include "clock.h"

namespace {

using Bytes = std::vector<unsigned char>;

// Other bytes every time, so that no layer can find that nothing changed.
void renew(Bytes &bytes) {
  static uint64_t state = 88172645463325252u;
  for (size_t i = 0; i + 8 <= bytes.size(); i += 8) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    std::memcpy(&bytes[i], &state, 8);
  }
}

void write_raw(int fd, const Bytes &bytes, uint64_t offset) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t n = ::pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (n <= 0) std::perror("pwrite"), std::exit(1);
    done += static_cast<size_t>(n);
  }
  if (::fdatasync(fd)) std::perror("fdatasync"), std::exit(1);
}

void commit_to_journal(st_file *file, const char *name, const st_tensor &tensor) {
  auto options = sized<st_txn_options>();
  options.flags = ST_TXN_JOURNAL_ONLY;
  st_txn *txn;
  REQUIRE_OK(st_txn_begin(file, &options, &txn));
  REQUIRE_OK(st_txn_update(txn, name, ST_NTS, &tensor));
  REQUIRE_OK(st_txn_commit(txn));
  st_txn_free(txn);
}

// What was timed must also be true.
void check_read(st_file *file, const char *name, const Bytes &bytes) {
  Bytes seen(bytes.size());
  REQUIRE_OK(st_read(file, name, ST_NTS, seen.data(), seen.size(), nullptr));
  require(seen == bytes, "the update is not what is read; update");
}

#ifdef ST_BENCH_SQLITE
class Sqlite {
 public:
  explicit Sqlite(const std::string &folder) {
    check(sqlite3_open((folder + "/peer.sqlite").c_str(), &db_));
    run("PRAGMA journal_mode=WAL");
    run("PRAGMA synchronous=FULL");
    run("CREATE TABLE tensors (id INTEGER PRIMARY KEY, value BLOB)");
    run("INSERT INTO tensors VALUES (1, x'00')");
    check(sqlite3_prepare_v2(db_, "UPDATE tensors SET value = ? WHERE id = 1", -1, &update_, nullptr));
  }
  ~Sqlite() { sqlite3_finalize(update_), sqlite3_close(db_); }
  Sqlite(const Sqlite &) = delete;
  Sqlite &operator=(const Sqlite &) = delete;

  void put(const Bytes &bytes) {
    check(sqlite3_bind_blob64(update_, 1, bytes.data(), bytes.size(), SQLITE_STATIC));
    require(sqlite3_step(update_) == SQLITE_DONE, "sqlite3_step");
    check(sqlite3_reset(update_));
  }

 private:
  static void check(int status) { require(status == SQLITE_OK, sqlite3_errstr(status)); }
  void run(const char *sql) { check(sqlite3_exec(db_, sql, nullptr, nullptr, nullptr)); }

  sqlite3 *db_ = nullptr;
  sqlite3_stmt *update_ = nullptr;
};
#endif

#ifdef ST_BENCH_LMDB
class Lmdb {
 public:
  Lmdb(const std::string &folder, size_t nbytes) {
    check(mdb_env_create(&env_));
    check(mdb_env_set_mapsize(env_, (size_t{16} << 20) + 8 * nbytes));
    check(mdb_env_open(env_, (folder + "/peer.lmdb").c_str(), MDB_NOSUBDIR, 0600));
    MDB_txn *txn;
    check(mdb_txn_begin(env_, nullptr, 0, &txn));
    check(mdb_dbi_open(txn, nullptr, 0, &db_));
    check(mdb_txn_commit(txn));
  }
  ~Lmdb() { mdb_env_close(env_); }
  Lmdb(const Lmdb &) = delete;
  Lmdb &operator=(const Lmdb &) = delete;

  void put(Bytes &bytes) {
    char name[] = "tensor";
    MDB_val key{sizeof name, name}, value{bytes.size(), bytes.data()};
    MDB_txn *txn;
    check(mdb_txn_begin(env_, nullptr, 0, &txn));
    check(mdb_put(txn, db_, &key, &value, 0));
    check(mdb_txn_commit(txn));
  }

 private:
  static void check(int status) { require(status == 0, mdb_strerror(status)); }

  MDB_env *env_ = nullptr;
  MDB_dbi db_ = 0;
};
#endif

}  // namespace

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  const char *name = argv[2];
  const int rounds = std::atoi(argv[3]);
  [[maybe_unused]] const std::string folder = argv[4];

  auto options = sized<st_open_options>();
  options.flags = ST_OPEN_READ_WRITE;
  st_file *file;
  REQUIRE_OK(st_open(argv[1], &options, &file));
  size_t index;
  st_tensor tensor;
  REQUIRE_OK(st_find(file, name, std::strlen(name), &index));
  REQUIRE_OK(st_at(file, index, 1, &tensor));
  Bytes bytes(tensor.nbytes);
  tensor.data = bytes.data();
  const int fd = ::open(argv[1], O_WRONLY | O_CLOEXEC);
  require(fd >= 0, "open");
#ifdef ST_BENCH_SQLITE
  Sqlite sqlite(folder);
#endif
#ifdef ST_BENCH_LMDB
  Lmdb lmdb(folder, bytes.size());
#endif

  for (int i = -2; i < rounds; ++i) {  // the first two warm
    const auto measure = [&](const char *what, const auto &work) {
      renew(bytes);
      const long long ns = nanoseconds(work);
      if (i >= 0) std::printf("%s %lld\n", what, ns);
    };
    measure("raw", [&] { write_raw(fd, bytes, tensor.file_offset); });
    measure("libst", [&] { REQUIRE_OK(st_update(file, name, ST_NTS, &tensor)); });
    check_read(file, name, bytes);
    measure("journal", [&] { commit_to_journal(file, name, tensor); });
    check_read(file, name, bytes);
    measure("follow", [&] { REQUIRE_OK(st_sync(file)); });
#ifdef ST_BENCH_SQLITE
    measure("sqlite", [&] { sqlite.put(bytes); });
#endif
#ifdef ST_BENCH_LMDB
    measure("lmdb", [&] { lmdb.put(bytes); });
#endif
  }
  st_close(file);
  ::close(fd);
}
