// killed_in_sum PERCENT [FILE]: ranks average in place, in memory that they share, and rank 2 is killed
// when it has written so much of its share of the results. Each element of those that are left has to be
// what it was before the average or after it, and the others go on. With FILE rank 2 is stopped, and the
// others average in new memory, say so by a file FILE.anew, and go on until there is FILE: not one bit of
// the memory changes when rank 2 wakes.
// Prints a line for each rank that comes to the end.
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "topology/static_graphs.hpp"

namespace {

using bluefog::Context;

constexpr std::int64_t kCount = 1 << 22;
constexpr int kVictim = 2;
constexpr int kStepOfEnd = 20;
constexpr int kStepsBeyond = 5;

/// The value of a rank before the average of a step.
float before(int rank, int step) { return static_cast<float>(64 * rank + step % 32); }

float after(const bluefog::NeighborPlan& plan, int step) {
  double sum = plan.self_weight * before(plan.rank, step);
  for (const auto& [rank, weight] : plan.sources) {
    sum += weight * before(rank, step);
  }
  return static_cast<float>(sum);
}

/// Elements that have not been averaged, of an average that was interrupted.
std::int64_t count_left(const float* values, const bluefog::NeighborPlan& plan, int step) {
  std::int64_t left = 0;
  for (std::int64_t k = 0; k < kCount; ++k) {
    if (values[k] == before(plan.rank, step)) {
      ++left;
    } else if (values[k] != after(plan, step)) {
      throw bluefog::Error(fmt::format("rank {}, step {}, element {}: expected {} or {}, found {}",
                                       plan.rank, step, k, before(plan.rank, step),
                                       after(plan, step), values[k]));
    }
  }
  return left;
}

/// The page whose first store ends, or stops, this process: not a thread's look, which may come late.
struct GuardedPage {
  std::byte* begin = nullptr;
  std::size_t bytes = 0;
  int signal = 0;
};
GuardedPage guarded;

void on_store(int /*signal*/, siginfo_t* info, void* /*context*/) {
  const auto* const at = static_cast<const std::byte*>(info->si_addr);
  if (at < guarded.begin || at >= guarded.begin + guarded.bytes) {
    std::signal(SIGSEGV, SIG_DFL);  // a fault of its own, which comes again
    return;
  }
  mprotect(guarded.begin, guarded.bytes, PROT_READ | PROT_WRITE);
  kill(getpid(), guarded.signal);  // who is woken stores then
}

/// Has this process get the signal as it begins to store to the page of `value`.
void end_at_store(float& value, int signal) {
  const auto page_bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  auto* const at = reinterpret_cast<std::byte*>(&value);
  guarded = {.begin = at - reinterpret_cast<std::uintptr_t>(at) % page_bytes,
             .bytes = page_bytes,
             .signal = signal};
  struct sigaction action = {};
  action.sa_sigaction = on_store;
  action.sa_flags = SA_SIGINFO;
  if (sigaction(SIGSEGV, &action, nullptr) != 0 ||
      mprotect(guarded.begin, guarded.bytes, PROT_READ) != 0) {
    throw bluefog::Error("cannot guard a page");
  }
}

/// Each hears the rank before it: halves of these values are exact.
std::shared_ptr<bluefog::NeighborPlan> plan_in(const Context& context) {
  return std::make_shared<bluefog::NeighborPlan>(
      bluefog::topology::ring(context.size(), bluefog::topology::RingStyle::Right)
          .plan_for(context.rank()));
}

/// Memory that the ranks of a context share, and its averages.
class Averages {
 public:
  explicit Averages(Context& context)
      : context_(context),
        plan_(plan_in(context)),
        memory_(context.allocate_shared(kCount * sizeof(float))) {}

  /// @param signal this process gets it when it has written `written` of its share of the results; 0: it
  ///   gets none.
  void make(int step, int signal = 0, double written = 0) {
    const float old = before(plan_->rank, step);
    std::fill_n(values(), kCount, old);
    if (signal != 0) {
      const std::int64_t share = kCount / plan_->size;
      end_at_store(values()[share * plan_->rank +
                            static_cast<std::int64_t>(written * static_cast<double>(share - 1))],
                   signal);
    }
    bluefog::ops::neighbor_allreduce(context_,
                                     bluefog::BufferView{.data = values(), .count = kCount}, plan_);
    if (count_left(step) > 0) {
      throw bluefog::Error(
          fmt::format("rank {}, step {}: expected a whole average", plan_->rank, step));
    }
  }
  [[nodiscard]] std::int64_t count_left(int step) const {
    return ::count_left(values(), *plan_, step);
  }

 private:
  [[nodiscard]] float* values() const { return reinterpret_cast<float*>(memory_.get()); }

  Context& context_;
  std::shared_ptr<bluefog::NeighborPlan> plan_;
  std::shared_ptr<std::byte> memory_;
};

/// Collective: whether a rank has found the file.
bool is_there(Context& context, const std::string& file) {
  float found = file.empty() || std::filesystem::exists(file) ? 1 : 0;
  bluefog::ops::allreduce(context, bluefog::BufferView{.data = &found, .count = 1},
                          {.reduction = bluefog::ops::Reduction::Sum});
  return found > 0;
}

int run(double written, const std::string& file) {
  const std::shared_ptr<Context> context = Context::create();
  const int own = context->rank();
  Averages averages(*context);
  std::shared_ptr<Context> smaller;
  std::int64_t left = 0;
  for (int step = 0; !smaller; ++step) {
    const bool ends = own == kVictim && step == kStepOfEnd;
    try {
      averages.make(step, ends ? (file.empty() ? SIGKILL : SIGSTOP) : 0, written);
    } catch (const bluefog::RankLostError&) {
      smaller = context->shrink();
      left = averages.count_left(step);
    }
  }
  Averages anew(*smaller);
  anew.make(0);
  if (!file.empty() && smaller->rank() == 0) {
    std::ofstream(file + ".anew") << "yes\n";
  }
  for (int step = 0; step < kStepsBeyond || !is_there(*smaller, file); ++step) {
    anew.make(step);
  }
  fmt::print("rank {} of {}: {} of {} elements were left as they had been\n", own, smaller->size(),
             left, kCount);
  std::fflush(stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    constexpr double kPercent = 0.01;
    return run(kPercent * (argc > 1 ? std::atoi(argv[1]) : 0), argc > 2 ? argv[2] : "");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
