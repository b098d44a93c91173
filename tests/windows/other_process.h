// Another process of the same program: it may be stopped and ended at any moment, and be asked for a line.
#pragma once

#ifndef NOMINMAX
#define NOMINMAX
#endif
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

#include <string>
#include <utility>

extern "C" {
LONG NTAPI NtSuspendProcess(HANDLE);
LONG NTAPI NtResumeProcess(HANDLE);
}

namespace st::testing {

class OtherProcess {
 public:
  OtherProcess() = default;
  // With these arguments, which have no quotes. What it prints can be read as lines; its input ends with this.
  explicit OtherProcess(const std::string &arguments) {
    SECURITY_ATTRIBUTES inherited = {sizeof inherited, nullptr, TRUE};
    HANDLE in = nullptr, out = nullptr;
    if (!::CreatePipe(&in, &to_, &inherited, 0) || !::CreatePipe(&from_, &out, &inherited, 0)) std::abort();
    ::SetHandleInformation(to_, HANDLE_FLAG_INHERIT, 0);
    ::SetHandleInformation(from_, HANDLE_FLAG_INHERIT, 0);
    STARTUPINFOA how = {};
    how.cb = sizeof how;
    how.dwFlags = STARTF_USESTDHANDLES;
    how.hStdInput = in;
    how.hStdOutput = out;
    how.hStdError = ::GetStdHandle(STD_ERROR_HANDLE);
    char program[4096];
    ::GetModuleFileNameA(nullptr, program, sizeof program);
    std::string line = "\"" + std::string(program) + "\" " + arguments;
    PROCESS_INFORMATION made = {};
    if (!::CreateProcessA(program, line.data(), nullptr, nullptr, TRUE, 0, nullptr, nullptr, &how, &made)) std::abort();
    ::CloseHandle(in);
    ::CloseHandle(out);
    ::CloseHandle(made.hThread);
    process_ = made.hProcess;
  }
  ~OtherProcess() { end(); }
  OtherProcess(OtherProcess &&other) noexcept { swap(other); }
  OtherProcess &operator=(OtherProcess &&other) noexcept {
    OtherProcess(std::move(other)).swap(*this);
    return *this;
  }

  // Without its end, and empty at the end of all.
  std::string line() {
    std::string text;
    char letter;
    for (DWORD got = 0; ::ReadFile(from_, &letter, 1, &got, nullptr) && got == 1 && letter != '\n';)
      if (letter != '\r') text += letter;
    return text;
  }
  bool lives() const { return ::WaitForSingleObject(process_, 0) == WAIT_TIMEOUT; }
  // Until it has ended by itself: its exit code.
  int wait() {
    DWORD code = 0;
    ::WaitForSingleObject(process_, INFINITE);
    ::GetExitCodeProcess(process_, &code);
    return static_cast<int>(code);
  }
  void stop() { ::NtSuspendProcess(process_); }
  void go_on() { ::NtResumeProcess(process_); }
  // As by SIGKILL. It is gone when this returns.
  void end() {
    if (!process_) return;
    ::TerminateProcess(process_, 9);
    ::WaitForSingleObject(process_, INFINITE);
    for (HANDLE *handle : {&process_, &to_, &from_}) ::CloseHandle(std::exchange(*handle, nullptr));
  }

 private:
  void swap(OtherProcess &other) noexcept {
    std::swap(process_, other.process_);
    std::swap(to_, other.to_);
    std::swap(from_, other.from_);
  }
  HANDLE process_ = nullptr, to_ = nullptr, from_ = nullptr;
};

}  // namespace st::testing
