#include "bluefog_cpp/work.hpp"

#include <exception>
#include <utility>

#include "bluefog_cpp/engine/engine.hpp"

namespace bluefog {

Work::Work(std::shared_ptr<Engine> engine, std::shared_ptr<Operation> operation)
    : engine_(std::move(engine)), operation_(std::move(operation)) {}

Work::Work(std::shared_ptr<Pending> pending) : pending_(std::move(pending)) {}

void Work::wait() const {
  if (operation_) {
    engine_->wait(*operation_);
  } else if (pending_) {
    pending_->wait({});
  }
}

void Work::wait(void* stream) const {
  if (operation_) {
    engine_->wait(*operation_);
  } else if (pending_) {
    pending_->wait(stream);
  }
}

void Work::wait_within(std::chrono::milliseconds timeout) const {
  if (operation_) {
    engine_->wait(*operation_, timeout);
  } else {
    wait();
  }
}

class Work::Attendance {
 public:
  explicit Attendance(const Waiter& waiter_in) : waiter(waiter_in) {}
  Waiter waiter;
};

std::shared_ptr<Work::Attendance> Work::attendance(std::chrono::milliseconds timeout) const {
  return std::make_shared<Attendance>(engine_ ? engine_->waiter_at_rest(timeout)
                                              : Waiter(WaitPolicy{}));
}

bool Work::attend(Attendance& attendance, std::chrono::steady_clock::time_point end) const {
  if (operation_) {
    return done() || engine_->attend(*operation_, attendance.waiter, end);
  }
  if (pending_) {
    try {
      pending_->wait({});
    } catch (const std::exception&) {
      return true;  // whoever waits gets it
    }
  }
  return true;
}

void Work::synchronize() const {
  if (pending_) {
    pending_->synchronize();
  } else {
    wait();
  }
}

bool Work::done() const noexcept {
  if (operation_) {
    return Engine::is_done(*operation_);
  }
  return !pending_ || pending_->done();
}

Device Work::device() const noexcept { return pending_ ? pending_->device() : Device{}; }

}  // namespace bluefog
