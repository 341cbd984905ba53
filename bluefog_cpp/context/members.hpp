#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/membership.hpp"

namespace bluefog {

/// The ranks of `before` that are left, and those that have joined, in the next epoch.
[[nodiscard]] Membership members_of(const Membership& before, const Bootstrap::Regrouped& left);

/// All that ranks hear which were not there before.
struct GroupRecord {
  Membership members;
  int contexts = 0;             ///< that the flight records of the others know
  std::vector<int> machines{};  ///< the former ones of the ranks that were there
};

[[nodiscard]] std::string to_text(const GroupRecord& record);
/// @throws TransportError for what is no such text.
[[nodiscard]] GroupRecord group_record_from(std::string_view text);

/// Adds the machines of the ranks that are new, which are behind the others: on the rank's host the
/// first one with room, or another one. @param most ranks of a machine; zero: all of a host.
void give_newcomers_machines(const std::vector<std::string>& host_ids, int most,
                             std::vector<int>& machines);

}  // namespace bluefog
