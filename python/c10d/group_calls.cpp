#include "python/c10d/group_calls.hpp"

#include <optional>

#include "bluefog_cpp/context/context_core.hpp"

namespace bluefog::c10d_backend {

void GroupCalls::refuse(const std::exception& error) {
  context_.core().engine().refuse(error.what());
}

WorkHandle GroupCalls::started(const Manner& manner, std::string_view call, Tensors result,
                               Start start, int source) {
  ++count_;
  const auto own = timeout_.load();
  const auto timeout = manner.timeout.count() > 0 ? manner.timeout : own;
  return parts_->errors.with([&]() -> WorkHandle {
    std::optional<Engine::Presence> presence;
    if (manner.is_blocking) {
      presence.emplace(context_.core().engine());
    }
    Calls calls;
    HostCopies copies;
    start({.rank = parts_->rank, .call = call, .copies = &copies}, calls);
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
