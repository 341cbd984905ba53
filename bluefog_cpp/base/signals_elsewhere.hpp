#pragma once

#include <signal.h>

namespace bluefog {

/// Keeps signals that come from elsewhere to the program's own threads: threads that are made while
/// it lives, and those that they make, take none.
class SignalsElsewhere {
 public:
  SignalsElsewhere() noexcept {
    sigset_t signals;
    sigfillset(&signals);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGSYS, SIGTRAP}) {
      sigdelset(&signals, fault);
    }
    pthread_sigmask(SIG_BLOCK, &signals, &before_);
  }
  SignalsElsewhere(const SignalsElsewhere&) = delete;
  SignalsElsewhere& operator=(const SignalsElsewhere&) = delete;
  ~SignalsElsewhere() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

}  // namespace bluefog
