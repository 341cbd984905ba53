#pragma once

#include <string>
#include <string_view>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/membership.hpp"

namespace bluefog {

/// The ranks of `before` that are left, and those that have joined, in the next epoch.
[[nodiscard]] Membership members_of(const Membership& before, const Bootstrap::Regrouped& left);

/// For ranks that were not there before.
[[nodiscard]] std::string to_text(const Membership& members);
/// @throws TransportError for what is no such text.
[[nodiscard]] Membership membership_from(std::string_view text);

}  // namespace bluefog
