#include "python/c10d/group_calls.hpp"

#include <fmt/format.h>

#include <optional>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::c10d_backend {

void GroupCalls::refuse(const std::exception& error) {
  context_.core().engine().refuse(error.what());
}

// Before the first lock, which a fork may have inherited.
void GroupCalls::check_home(std::string_view call) const {
  if (context_.core().engine().is_forked()) {
    throw StateError(fmt::format(
        "rank {}, {}: expected the process of that rank, found a fork of it, which cannot "
        "communicate",
        parts_->rank, call));
  }
}

bluefog::Work GroupCalls::submit_operation(std::shared_ptr<Operation> operation) {
  return context_.core().engine().submit(std::move(operation));
}

WorkHandle GroupCalls::started(const Manner& manner, std::string_view call, Tensors result,
                               Start start, int source) {
  ++count_;
  const auto own = timeout_.load();
  const auto timeout = manner.timeout.count() > 0 ? manner.timeout : own;
  return parts_->errors.with([&]() -> WorkHandle {
    check_home(call);
    std::optional<Engine::Presence> presence;
    if (manner.is_blocking) {
      presence.emplace(context_.core().engine());
    }
    Calls calls;
    HostCopies copies;
    const bool is_sent = manner.type == OpType::SEND;
    start({.rank = parts_->rank,
           .call = call,
           .copies = &copies,
           .results = is_sent ? nullptr : &result},
          calls);
    auto work =
        c10::make_intrusive<GroupWork>(parts_, manner.type, std::move(calls), std::move(result),
                                       std::move(copies), timeout, source);
    if (manner.is_blocking) {
      work->wait({});
    }
    return work;
  });
}

}  // namespace bluefog::c10d_backend
