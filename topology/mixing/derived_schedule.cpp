#include "topology/mixing/derived_schedule.hpp"

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace bluefog {
namespace {

class DerivedSource final : public Schedule::Source {
 public:
  DerivedSource(Schedule schedule, int size, StepChange change)
      : schedule_(std::move(schedule)), size_(size), change_(std::move(change)) {}

  [[nodiscard]] int size() const override { return size_; }
  [[nodiscard]] std::int64_t period_steps() const override { return schedule_.period_steps(); }

  [[nodiscard]] MixingMatrix mixing_matrix(std::int64_t phase) const override {
    const std::lock_guard lock(mutex_);
    if (phase != kept_phase_) {
      kept_ = change_(schedule_.mixing_matrix(phase));
      kept_phase_ = phase;
    }
    return *kept_;
  }

  [[nodiscard]] NeighborPlan plan_for(int rank, std::int64_t phase) const override {
    NeighborPlan plan = mixing_matrix(phase).plan_for(rank);
    plan.step = nullptr;  // it would keep the whole step
    return plan;
  }

 private:
  Schedule schedule_;
  int size_;
  StepChange change_;
  mutable std::mutex mutex_;
  mutable std::int64_t kept_phase_ = -1;
  mutable std::optional<MixingMatrix> kept_;
};

}  // namespace

Schedule derived_schedule(Schedule schedule, int size, StepChange change) {
  return Schedule(std::make_unique<DerivedSource>(std::move(schedule), size, std::move(change)));
}

}  // namespace bluefog
