// Ctrl-C (and SIGTERM, SIGHUP): the first asks libst to give up what it does,
// so that the command ends with nothing half-done; a second ends the process at
// once, which libst survives as it survives a crash. Where a command only waits
// in a call that libst can't interrupt and changes nothing, the first ends it.
#pragma once

#include <st/st.h>

namespace stctl {

void catch_signals();

// The signal that came, 0 if none did.
int interrupted();

// The signal has been answered, or came too late to matter: go on as if it had not come. What is left is to tell, and
// that is soon done: one that comes first after this is too late, too. A second still ends the process. Call this where
// a signal is polite yet, so that none comes between.
void forget_interrupt();

// To be called last: does not return if the exit code is that of the signal that came. The process ends by the signal,
// which a shell tells as this exit code.
void end_if_interrupted(int exit_code);

// Throws Failure with exit code 128 + signal if a signal came.
void throw_if_interrupted();

// While it lives, a signal is st_interrupt(file) and interrupted(). With NULL:
// interrupted() alone, for work that looks at it now and then.
class Interruptible {
 public:
  explicit Interruptible(st_file *file);
  ~Interruptible();
  Interruptible(const Interruptible &) = delete;
  Interruptible &operator=(const Interruptible &) = delete;

 private:
  st_file *outer_file_;
  bool outer_;
};

// While it lives, a signal ends the process: around a read or write that may block for ever, when
// nothing could be left half-done. Throws as throw_if_interrupted() if a signal came before.
class Blocking {
 public:
  Blocking();
  ~Blocking();
  Blocking(const Blocking &) = delete;
  Blocking &operator=(const Blocking &) = delete;

 private:
  bool outer_;
};

}  // namespace stctl
