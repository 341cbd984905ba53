#include "bluefog_cpp/work.hpp"

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
