#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace bluefog {

/// The ranks that one rank hears, and those that hear it, both rising, without weights.
struct StepLinks {
  std::vector<int> sources;
  std::vector<int> destinations;
};

/// Ranks that the messages of one step tie together, and who among them hears whom: a weakly
/// connected component of the step's graph. The same on all of its ranks.
///
/// With every rank's weights beside it, any of them can form the results of all.
class StepComponent {
 public:
  /// A message of the step, seen from the rank that hears it.
  struct Edge {
    /// The sender's place among `ranks()`.
    std::size_t from = 0;
    /// The number of the message among those that its sender sends, by rising reader.
    std::size_t number = 0;
  };

  /// The component of `rank`. Cost: a look at the links of each of its ranks.
  /// @param links_of a rank's part of the step. @param most the ranks that it may have.
  /// @return null where it has more, or where a message has one end alone.
  static std::shared_ptr<const StepComponent> around(int rank, std::size_t most,
                                                     const std::function<StepLinks(int)>& links_of);

  /// The ranks, rising.
  [[nodiscard]] const std::vector<int>& ranks() const noexcept { return ranks_; }
  [[nodiscard]] std::size_t size() const noexcept { return ranks_.size(); }
  /// The place of `rank`, which is one of them.
  [[nodiscard]] std::size_t place_of(int rank) const;
  /// What the rank at `place` hears, by rising sender.
  [[nodiscard]] std::span<const Edge> heard(std::size_t place) const {
    return std::span(edges_).subspan(begin_[place], begin_[place + 1] - begin_[place]);
  }
  /// The number of ranks that hear the one at `place`.
  [[nodiscard]] std::size_t sent_count(std::size_t place) const { return sent_[place]; }
  /// Equal for equal ranks and edges; never 0.
  [[nodiscard]] std::uint64_t digest() const noexcept { return digest_; }

 private:
  StepComponent() = default;

  std::vector<int> ranks_;
  std::vector<std::size_t> begin_;
  std::vector<Edge> edges_;
  std::vector<std::size_t> sent_;
  std::uint64_t digest_ = 0;
};

}  // namespace bluefog
