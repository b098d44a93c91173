#include "interrupt.h"

#include <unistd.h>

#include <atomic>

#include "failure.h"
#include "system.h"

namespace stctl {
namespace {

std::atomic<int> came{0};
std::atomic<st_file *> to_interrupt{nullptr};
std::atomic<bool> polite{false};
std::atomic<bool> too_late{false};
static_assert(std::atomic<st_file *>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void on_signal(int signal) {
  const bool first = came.exchange(signal) == 0;
  if (first && too_late.load()) return;
  if (!first || !polite.load()) {
    static constexpr char sentence[] = "stctl: interrupted\n";
    [[maybe_unused]] const ssize_t told = write(STDERR_FILENO, sentence, sizeof sentence - 1);
    end_by_signal(signal);
    _exit(exit_signal + signal);
  }
  if (st_file *file = to_interrupt.load()) st_interrupt(file);
}

}  // namespace

void catch_signals() {
  handle_signals(on_signal);
}

int interrupted() {
  return too_late.load() ? 0 : came.load();
}

void forget_interrupt() {
  too_late.store(true);
}

void end_if_interrupted(int exit_code) {
  const int signal = came.load();
  if (signal != 0 && exit_code == exit_signal + signal) end_by_signal(signal);
}

void throw_if_interrupted() {
  if (int signal = interrupted()) throw Failure(exit_signal + signal, "interrupted");
}

Interruptible::Interruptible(st_file *file) : outer_file_(to_interrupt.load()), outer_(polite.load()) {
  to_interrupt.store(file);
  polite.store(true);
}

Interruptible::~Interruptible() {
  polite.store(outer_);
  to_interrupt.store(outer_file_);
  await_handler();
}

// The order matters: a signal before the store is seen by the look after it, one after the store does
// not come back.
Blocking::Blocking() : outer_(polite.exchange(false)) {
  if (interrupted()) {
    polite.store(outer_);
    throw_if_interrupted();
  }
}

Blocking::~Blocking() {
  polite.store(outer_);
}

}  // namespace stctl
