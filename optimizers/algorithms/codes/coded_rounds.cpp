#include "optimizers/algorithms/codes/coded_rounds.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "optimizers/checks/momentum_growth.hpp"

namespace bluefog::optimizers {
namespace {

/// The longest chunk of a code, and the shortest block.
constexpr std::int64_t kMostValues = 4096;
constexpr std::int64_t kLeastValues = 256;
/// Of all copies together.
constexpr std::int64_t kMostCopied = std::int64_t{4} << 20;
constexpr std::int64_t kMostRounds = 400;
constexpr std::int64_t kLeastRounds = 60;
/// Of all ranks and rounds.
constexpr std::int64_t kVectors = 12'800;
/// Norms beside the first one, from which on differences do not come back.
constexpr double kGrownForGood = 1e6;
/// Differences that float32 does not tell apart.
constexpr double kAgreement = 1e-9;

using Vector = std::vector<double>;

std::size_t length_for(const Schedule& schedule) {
  const std::int64_t copies = schedule.period_steps() * schedule.size();
  return static_cast<std::size_t>(std::clamp(kMostCopied / copies, kLeastValues, kMostValues));
}

/// The vectors of all ranks.
class CodedRanks {
 public:
  CodedRanks(const CodedRounds& rounds, double consensus_step_size)
      : rounds_(rounds),
        consensus_step_size_(consensus_step_size),
        length_(length_for(rounds.schedule)),
        theta_(static_cast<std::size_t>(rounds.schedule.size()), Vector(length_)),
        carried_(theta_.size(), Vector(length_, 0.0)),
        copies_(static_cast<std::size_t>(rounds.schedule.period_steps()),
                std::vector<Vector>(theta_.size(), Vector(length_, 0.0))),
        average_(length_),
        difference_(length_),
        code_(rounds.compression.bytes_of(length_)) {
    std::mt19937_64 engine(1);
    for (Vector& values : theta_) {
      for (double& value : values) {
        value = static_cast<double>(engine() >> 11U) * 0x1p-53 - 0.5;
      }
    }
  }

  void round(std::int64_t number) {
    const MixingMatrix matrix = rounds_.schedule.mixing_matrix(number);
    std::vector<Vector>& copies = copies_[static_cast<std::size_t>(number) % copies_.size()];
    for (std::size_t i = 0; i < theta_.size(); ++i) {
      tell(theta_[i], copies[i]);
    }
    for (std::size_t i = 0; i < theta_.size(); ++i) {
      average_ = theta_[i];
      for (const WeightedRank& entry : matrix.row(static_cast<int>(i))) {
        const Vector& theirs = copies[static_cast<std::size_t>(entry.rank)];
        for (std::size_t k = 0; k < length_; ++k) {
          average_[k] += consensus_step_size_ * entry.weight * (theirs[k] - copies[i][k]);
        }
      }
      rounds_.update(theta_[i], carried_[i], average_);
    }
  }

  [[nodiscard]] double norm() const {
    double sum = 0.0;
    for (std::size_t k = 0; k < length_; ++k) {
      double mean = 0.0;
      for (const Vector& values : theta_) {
        mean += values[k] / static_cast<double>(theta_.size());
      }
      for (const Vector& values : theta_) {
        sum += (values[k] - mean) * (values[k] - mean);
      }
    }
    return std::sqrt(sum);
  }

 private:
  void tell(const Vector& values, Vector& copy) {
    for (std::size_t k = 0; k < length_; ++k) {
      difference_[k] = static_cast<float>(values[k] - copy[k]);
    }
    rounds_.compression.encode(difference_, code_);
    rounds_.compression.decode(code_, difference_);
    for (std::size_t k = 0; k < length_; ++k) {
      copy[k] += static_cast<double>(difference_[k]);
    }
  }

  const CodedRounds& rounds_;
  double consensus_step_size_;
  std::size_t length_;
  std::vector<Vector> theta_;
  std::vector<Vector> carried_;
  /// By matrix of the schedule and rank.
  std::vector<std::vector<Vector>> copies_;
  Vector average_;
  std::vector<float> difference_;
  std::vector<std::byte> code_;
};

}  // namespace

CodedTrial try_coded_rounds(const CodedRounds& rounds, double consensus_step_size) {
  CodedRanks ranks(rounds, consensus_step_size);
  const std::int64_t count =
      std::clamp(kVectors / rounds.schedule.size(), kLeastRounds, kMostRounds);
  const double first = ranks.norm();
  std::vector<double> norms{first};
  for (std::int64_t number = 0; number < count && norms.back() <= kGrownForGood * first; ++number) {
    ranks.round(number);
    norms.push_back(ranks.norm());
    if (norms.back() < kAgreement * first) {
      return {};
    }
  }
  if (std::isnan(norms.back())) {
    constexpr double kBeyondAll = std::numeric_limits<double>::infinity();
    return {.growth = kBeyondAll, .late_growth = kBeyondAll, .left = kBeyondAll};
  }
  const auto middle = norms.begin() + static_cast<std::ptrdiff_t>(norms.size() / 2);
  const auto last = norms.begin() + static_cast<std::ptrdiff_t>(norms.size() * 3 / 4);
  return {.growth = growth_of(norms),
          .late_growth = growth_of(std::vector<double>(middle, norms.end())),
          .left = *std::max_element(last, norms.end()) / first};
}

}  // namespace bluefog::optimizers
