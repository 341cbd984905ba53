#include "optimizers/algorithms/outer/coded_rounds.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <span>
#include <vector>

namespace bluefog::optimizers {
namespace {

/// The longest chunk of a code.
constexpr std::size_t kValues = 4096;
constexpr std::int64_t kMostRounds = 400;
constexpr std::int64_t kLeastRounds = 60;
/// Of all ranks and rounds.
constexpr std::int64_t kVectors = 12'800;
constexpr double kGrownForGood = 1e100;
/// Differences that float32 does not tell apart.
constexpr double kAgreement = 1e-9;

using Vector = std::vector<double>;

/// The vectors of all ranks.
class CodedRanks {
 public:
  CodedRanks(const OuterMomentum& rule, const Schedule& schedule,
             const ops::Compression& compression, double consensus_step_size)
      : rule_(rule),
        compression_(compression),
        consensus_step_size_(consensus_step_size),
        theta_(static_cast<std::size_t>(schedule.size()), Vector(kValues)),
        moments_(theta_.size(), Vector(kValues, 0.0)),
        copies_(static_cast<std::size_t>(schedule.period_steps()),
                std::vector<Vector>(theta_.size(), Vector(kValues, 0.0))),
        difference_(kValues),
        code_(compression.bytes_of(kValues)) {
    std::mt19937_64 engine(1);
    for (Vector& values : theta_) {
      for (double& value : values) {
        value = static_cast<double>(engine() >> 11U) * 0x1p-53 - 0.5;
      }
    }
  }

  void round(std::int64_t number, const MixingMatrix& matrix) {
    std::vector<Vector>& copies = copies_[static_cast<std::size_t>(number) % copies_.size()];
    for (std::size_t i = 0; i < theta_.size(); ++i) {
      tell(theta_[i], copies[i]);
    }
    for (std::size_t i = 0; i < theta_.size(); ++i) {
      Vector average = theta_[i];
      for (const WeightedRank& entry : matrix.row(static_cast<int>(i))) {
        const Vector& theirs = copies[static_cast<std::size_t>(entry.rank)];
        for (std::size_t k = 0; k < kValues; ++k) {
          average[k] += consensus_step_size_ * entry.weight * (theirs[k] - copies[i][k]);
        }
      }
      for (std::size_t k = 0; k < kValues; ++k) {
        rule_.move(theta_[i][k], moments_[i][k], average[k]);
      }
    }
  }

  [[nodiscard]] double norm() const {
    double sum = 0.0;
    for (std::size_t k = 0; k < kValues; ++k) {
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
    for (std::size_t k = 0; k < kValues; ++k) {
      difference_[k] = static_cast<float>(values[k] - copy[k]);
    }
    compression_.encode(difference_, code_);
    compression_.decode(code_, difference_);
    for (std::size_t k = 0; k < kValues; ++k) {
      copy[k] += static_cast<double>(difference_[k]);
    }
  }

  OuterMomentum rule_;
  const ops::Compression& compression_;
  double consensus_step_size_;
  std::vector<Vector> theta_;
  std::vector<Vector> moments_;
  /// By matrix of the schedule and rank.
  std::vector<std::vector<Vector>> copies_;
  std::vector<float> difference_;
  std::vector<std::byte> code_;
};

}  // namespace

double growth_per_coded_round(const OuterMomentum& rule, const Schedule& schedule,
                              const ops::Compression& compression, double consensus_step_size) {
  CodedRanks ranks(rule, schedule, compression, consensus_step_size);
  const std::int64_t rounds = std::clamp(kVectors / schedule.size(), kLeastRounds, kMostRounds);
  const double first = ranks.norm();
  std::vector<double> norms{first};
  for (std::int64_t number = 0; number < rounds && norms.back() < kGrownForGood; ++number) {
    ranks.round(number, schedule.mixing_matrix(number));
    norms.push_back(ranks.norm());
    if (norms.back() < kAgreement * first) {
      return 0.0;
    }
  }
  return growth_of(norms);
}

}  // namespace bluefog::optimizers
