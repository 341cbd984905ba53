#pragma once

#include <functional>
#include <memory>
#include <string>

#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/store.hpp"
#include "bluefog_cpp/store_bootstrap.hpp"

namespace bluefog {

/// Collective. The name of this attempt of a launch whose attempts share a store and a prefix, and
/// cannot be told apart by what each rank knows: agents of torchrun on several hosts count restarts
/// each for itself.
///
/// Rank 0 chooses it. Each other rank asks under a name of its own, and says when it has the answer,
/// which a process of an attempt before, whose question still stands there, never does.
/// @throws TimeoutError naming the ranks that have not come; TransportError.
[[nodiscard]] std::string agree_on_attempt(const std::shared_ptr<Store>& store,
                                           const StorePlace& place, const Settings& settings,
                                           Deadline deadline,
                                           const std::function<void()>& interrupt_check);

}  // namespace bluefog
