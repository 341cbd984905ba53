#include "bluefog_cpp/engine/context_family.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "bluefog_cpp/engine/engine.hpp"

namespace bluefog {

void ContextFamily::add(Engine& engine) {
  const std::lock_guard lock(mutex_);
  engines_.push_back(&engine);
}

void ContextFamily::remove(const Engine& engine) {
  const std::lock_guard lock(mutex_);
  std::erase(engines_, &engine);
}

bool ContextFamily::is_revoked() const {
  return std::ranges::any_of(engines(), &Engine::is_revoked);
}

void ContextFamily::revoke(std::string_view why) const {
  for (const auto& engine : engines()) {
    engine->revoke(why);
  }
}

std::vector<std::shared_ptr<Engine>> ContextFamily::engines() const {
  std::vector<std::shared_ptr<Engine>> engines;
  const std::lock_guard lock(mutex_);
  for (Engine* const engine : engines_) {
    if (auto held = engine->weak_from_this().lock()) {
      engines.push_back(std::move(held));
    }
  }
  return engines;
}

bool ContextFamily::is_first(const Engine& engine) const {
  const std::lock_guard lock(mutex_);
  return !engines_.empty() && engines_.front() == &engine;
}

std::string ContextFamily::ahead_elsewhere(int rank, const Engine& here) const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (Engine* const engine : engines_) {
    const std::string call = engine == &here ? std::string() : engine->call_ahead(rank);
    if (!call.empty()) {
      text += fmt::format(
          "; in another context, as each distributed optimizer has one, it has begun {}, which "
          "this rank has not",
          call);
    }
  }
  return text;
}

std::pair<Engine*, Transport::SeenCall> ContextFamily::find_wait_elsewhere(
    int rank, const Engine& here) const {
  const std::lock_guard lock(mutex_);
  for (Engine* const engine : engines_) {
    if (engine != &here) {
      if (const auto call = engine->wait_for_this(rank)) {
        return {engine, *call};
      }
    }
  }
  return {nullptr, {}};
}

}  // namespace bluefog
