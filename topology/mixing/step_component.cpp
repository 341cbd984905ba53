#include "topology/mixing/step_component.hpp"

#include <algorithm>
#include <boost/container_hash/hash.hpp>
#include <map>
#include <utility>

namespace bluefog {
namespace {

using Links = std::map<int, StepLinks>;

/// The links of all ranks that `rank` is tied to, or of none where they are more than `most`.
Links collect(int rank, std::size_t most, const std::function<StepLinks(int)>& links_of) {
  Links links;
  std::vector<int> next{rank};
  while (!next.empty()) {
    const int one = next.back();
    next.pop_back();
    if (links.contains(one)) {
      continue;
    }
    if (links.size() == most) {
      return {};
    }
    const StepLinks& found = links.emplace(one, links_of(one)).first->second;
    for (const auto* side : {&found.sources, &found.destinations}) {
      next.insert(next.end(), side->begin(), side->end());
    }
  }
  return links;
}

}  // namespace

std::shared_ptr<const StepComponent> StepComponent::around(
    int rank, std::size_t most, const std::function<StepLinks(int)>& links_of) {
  const Links links = collect(rank, most, links_of);
  if (links.empty()) {
    return nullptr;
  }
  auto made = std::shared_ptr<StepComponent>(new StepComponent);
  std::size_t sent_in_all = 0;
  std::size_t digest = 0;
  for (const auto& [one, found] : links) {
    made->ranks_.push_back(one);
    made->sent_.push_back(found.destinations.size());
    sent_in_all += found.destinations.size();
    boost::hash_combine(digest, one);
    boost::hash_combine(digest, found.sources);
  }
  for (const auto& [one, found] : links) {
    made->begin_.push_back(made->edges_.size());
    for (const int source : found.sources) {
      const auto& readers = links.at(source).destinations;
      const auto reader = std::ranges::lower_bound(readers, one);
      if (reader == readers.end() || *reader != one) {
        return nullptr;
      }
      made->edges_.push_back({.from = made->place_of(source),
                              .number = static_cast<std::size_t>(reader - readers.begin())});
    }
  }
  made->begin_.push_back(made->edges_.size());
  if (made->edges_.size() != sent_in_all) {
    return nullptr;
  }
  made->digest_ = digest == 0 ? 1 : digest;
  return made;
}

std::size_t StepComponent::place_of(int rank) const {
  return static_cast<std::size_t>(std::ranges::lower_bound(ranks_, rank) - ranks_.begin());
}

}  // namespace bluefog
