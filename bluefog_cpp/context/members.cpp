#include "bluefog_cpp/context/members.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

/// The highest number that a rank has or had.
int highest_number(const Membership& members) {
  int highest = -1;
  for (const int rank : members.ranks) {
    highest = std::max(highest, rank);
  }
  for (const Membership::Loss& loss : members.lost) {
    highest = std::max(highest, loss.rank);
  }
  return highest;
}

}  // namespace

Membership members_of(const Membership& before, const Bootstrap::Regrouped& left) {
  Membership members{
      .epoch = before.epoch + 1, .ranks = {}, .lost = before.lost, .joined = before.joined};
  for (const int rank : left.ranks) {
    members.ranks.push_back(before.ranks[static_cast<std::size_t>(rank)]);
  }
  for (const auto& [rank, cause] : left.lost) {
    members.lost.push_back({.rank = before.ranks[static_cast<std::size_t>(rank)],
                            .epoch = members.epoch,
                            .cause = cause,
                            .time = left.time});
  }
  const int highest = highest_number(before);
  for (int rank = highest + 1; rank <= highest + left.joined; ++rank) {
    members.ranks.push_back(rank);
    members.joined.push_back({.rank = rank, .epoch = members.epoch});
  }
  return members;
}

std::string to_text(const GroupRecord& record) {
  const Membership& members = record.members;
  nlohmann::json lost = nlohmann::json::array();
  for (const auto& [rank, epoch, cause, time, step] : members.lost) {
    lost.push_back({rank, epoch, cause, time, step});
  }
  nlohmann::json joined = nlohmann::json::array();
  for (const auto& [rank, epoch] : members.joined) {
    joined.push_back({rank, epoch});
  }
  return nlohmann::json{{"epoch", members.epoch},      {"ranks", members.ranks},
                        {"lost", std::move(lost)},     {"joined", std::move(joined)},
                        {"contexts", record.contexts}, {"machines", record.machines}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

GroupRecord group_record_from(std::string_view text) {
  try {
    const auto record = nlohmann::json::parse(text);
    Membership members{.epoch = record.at("epoch"), .ranks = record.at("ranks")};
    for (const auto& loss : record.at("lost")) {
      members.lost.push_back({.rank = loss.at(0),
                              .epoch = loss.at(1),
                              .cause = loss.at(2),
                              .time = loss.at(3),
                              .step = loss.at(4)});
    }
    for (const auto& entry : record.at("joined")) {
      members.joined.push_back({.rank = entry.at(0), .epoch = entry.at(1)});
    }
    return {.members = std::move(members),
            .contexts = record.at("contexts"),
            .machines = record.at("machines")};
  } catch (const nlohmann::json::exception& error) {
    throw TransportError(fmt::format(
        "expected a record of the ranks that take part, found '{}': {}", text, error.what()));
  }
}

void give_newcomers_machines(const std::vector<std::string>& host_ids, int most,
                             std::vector<int>& machines) {
  for (std::size_t rank = machines.size(); rank < host_ids.size(); ++rank) {
    int found = std::ranges::max(machines) + 1;
    for (std::size_t other = rank; other-- > 0;) {
      const bool has_room = most == 0 || std::ranges::count(machines, machines[other]) < most;
      if (host_ids[other] == host_ids[rank] && has_room) {
        found = machines[other];
      }
    }
    machines.push_back(found);
  }
}

}  // namespace bluefog
