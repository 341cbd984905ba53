#include "bluefog_cpp/transport/work.hpp"

#include <utility>

#include "bluefog_cpp/transport/engine.hpp"

namespace bluefog {

Work::Work(std::shared_ptr<Engine> engine, std::shared_ptr<Operation> operation)
    : engine_(std::move(engine)), operation_(std::move(operation)) {}

void Work::wait() const {
  if (operation_) {
    engine_->wait(*operation_);
  }
}

bool Work::done() const noexcept { return !operation_ || Engine::is_done(*operation_); }

}  // namespace bluefog
