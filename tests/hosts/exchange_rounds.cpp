// Exchanges rounds with all other ranks and compares what comes with what has to. Prints a line:
// "rank 0 of 4: right", or the error, with its own exit code.
//
//   exchange_rounds ROUNDS       so many
//   exchange_rounds until FILE   until rank 0 finds the file; every rank says "under way" before
//   exchange_rounds after FILE   three, from when the file is there on; says so before, too
//   exchange_rounds rest SECONDS the last rank makes no call for so long, while the others wait for
//                                it; then all make none
#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string_view>
#include <thread>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "topology/neighbor_plan.hpp"

namespace {

using namespace bluefog;

constexpr int kPeerFailed = 3;
constexpr int kOtherError = 4;
constexpr int kWrong = 5;

BufferView view(std::vector<float>& values) {
  return {values.data(), static_cast<std::int64_t>(values.size()), Dtype::Float32};
}

float value_of(int rank, std::size_t k, int round) {
  return static_cast<float>((static_cast<int>(k % 61) + 7 * rank + round) % 32);
}

class Rounds {
 public:
  explicit Rounds(Context& context)
      : context_(context),
        plan_(std::make_shared<NeighborPlan>(NeighborPlan::alone(context.rank(), context.size()))) {
    for (int other = 0; other < context.size(); ++other) {
      if (other != context.rank()) {
        plan_->sources.push_back({other, 1.0});
        plan_->destinations.push_back({other, 1.0});
      }
    }
  }

  /// A sum over all ranks: messages of `count` elements, by every pair.
  void exchange(std::size_t count) {
    std::vector<float> sum(count);
    for (std::size_t k = 0; k < count; ++k) {
      sum[k] = value_of(context_.rank(), k, round_);
    }
    ops::neighbor_allreduce(context_, view(sum), plan_);
    for (std::size_t k = 0; k < count; ++k) {
      float expected = 0;
      for (int rank = 0; rank < context_.size(); ++rank) {
        expected += value_of(rank, k, round_);
      }
      is_right_ = is_right_ && sum[k] == expected;
    }
    ++round_;
  }

  /// Whether rank 0 says so.
  bool ask_rank_zero(bool says) {
    std::vector<float> word{says ? 1.0F : 0.0F};
    ops::broadcast(context_, view(word), 0);
    return word.front() != 0;
  }

  [[nodiscard]] bool are_right() const noexcept { return is_right_; }

 private:
  Context& context_;
  std::shared_ptr<NeighborPlan> plan_;
  int round_ = 0;
  bool is_right_ = true;
};

void say_under_way(const Context& context) {
  fmt::print("rank {}: under way\n", context.rank());
  std::fflush(stdout);
}

void run(Context& context, Rounds& rounds, std::string_view way, const char* argument) {
  constexpr std::size_t kCount = 10'000;
  // More than all buffers on the way hold.
  constexpr std::size_t kLarge = std::size_t{4} << 20U;
  if (way == "until") {
    rounds.exchange(kCount);
    say_under_way(context);
    while (!rounds.ask_rank_zero(std::filesystem::exists(argument))) {
      rounds.exchange(kCount);
    }
  } else if (way == "after") {
    say_under_way(context);
    while (!std::filesystem::exists(argument)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    rounds.exchange(kCount);
  } else if (way == "rest") {
    const std::chrono::seconds rest(std::atoi(argument));
    rounds.exchange(kCount);
    if (context.rank() == context.size() - 1) {
      std::this_thread::sleep_for(rest);
    }
    rounds.exchange(kLarge);
    std::this_thread::sleep_for(rest);
    rounds.exchange(kCount);
  } else {
    for (int left = std::atoi(argument); left > 0; --left) {
      rounds.exchange(kCount);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view way = argc > 2 ? argv[1] : "rounds";
  const char* const argument = argc > 1 ? argv[argc - 1] : "3";
  int rank = -1;
  try {
    const auto context = Context::create();
    rank = context->rank();
    Rounds rounds(*context);
    run(*context, rounds, way, argument);
    fmt::print("rank {} of {}: {}\n", rank, context->size(),
               rounds.are_right() ? "right" : "wrong");
    return rounds.are_right() ? 0 : kWrong;
  } catch (const PeerFailure& failure) {
    fmt::print("rank {} lost rank {}: {}\n", rank, failure.rank(), failure.what());
    return kPeerFailed;
  } catch (const Error& error) {
    fmt::print("rank {}: {}\n", rank, error.what());
    return kOtherError;
  }
}
