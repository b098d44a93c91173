// Why a command stops: thrown where it happens, caught only in main.cpp (and
// by the commands that go on with the next file). Carries what libst knows
// about the error, and the exit code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "exit_code.h"

namespace stctl {

class Json;

class Failure : public std::exception {
 public:
  Failure(int exit_code, std::string message, st_status status = ST_OK)
      : exit_code_(exit_code), message_(std::move(message)), status_(status) {}

  // What libst last said on this thread.
  static Failure of_libst(st_status status);

  // A failed system call of stctl's own: "cannot WHAT 'PATH': No such file or directory".
  static Failure of_errno(int err, const char *what, const std::string &path, st_status status = ST_OK);

  const char *what() const noexcept override { return message_.c_str(); }
  int exit_code() const { return exit_code_; }
  st_status status() const { return status_; }  // ST_OK: it is not libst's
  Failure with_exit_code(int code) const;
  // For a call that leaves everything as it was if the disk, or the quota, is full. It tells that.
  Failure with_nothing_changed() const;

  // "sentence (ST_E_NAME)"
  std::string sentence() const;

  // {"status":…,"message":…,…}: the value of "error" in every --json output.
  void write(Json &json) const;

 private:
  int exit_code_;
  std::string message_;
  st_status status_;
  int os_errno_ = 0;
  int64_t holder_pid_ = 0;
  std::optional<uint64_t> offset_;
  std::optional<std::string> tensor_;
};

// Throws Failure unless `status` is ST_OK.
void check(st_status status);
// The same, of a call that makes all of its change, or nothing.
void check_change(st_status status);

// A command line that CLI11 accepts and stctl does not.
struct UsageFailure : Failure {
  explicit UsageFailure(std::string message) : Failure(exit_usage, std::move(message)) {}
};

// Throws UsageFailure unless just one of these options was given.
void check_one_source(size_t given, const char *options);

}  // namespace stctl
