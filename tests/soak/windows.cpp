#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <thread>

#include "ops/collectives.hpp"
#include "ops/window.hpp"
#include "tests/soak/soak.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::soak {
namespace {

constexpr int kCallsPerEpoch = 60;
constexpr std::size_t kThreads = 2;

BufferView view_of(std::vector<double>& values) {
  return {.data = values.data(),
          .count = static_cast<std::int64_t>(values.size()),
          .dtype = Dtype::Float64};
}

std::vector<double> total(Context& context, std::vector<double> values) {
  ops::allreduce(context, view_of(values), {.reduction = ops::Reduction::Sum});
  return values;
}

NeighborPlan full_plan(const Context& context) {
  return topology::fully_connected(context.size()).plan_for(context.rank());
}

std::vector<WeightedRank> one_of(const std::vector<WeightedRank>& ranks, double weight,
                                 Dice& dice) {
  const int index = Dice::roll(dice.own, static_cast<int>(ranks.size()));
  return {{.rank = ranks[static_cast<std::size_t>(index)].rank, .weight = weight}};
}

ops::Exclusion random_exclusion(Dice& dice) {
  return Dice::roll(dice.own, 2) == 0 ? ops::Exclusion::None : ops::Exclusion::Mutex;
}

/// Whole numbers that threads hand to other ranks: whoever holds them, their sum stays.
class Ledger {
 public:
  Ledger(Context& context, Run& run, std::size_t count)
      : context_(context), run_(run), account_(count, 1000.0 * (context.rank() + 1)) {
    for (auto& purse : purses_) {
      purse.assign(count, 1e6 * (context.rank() + 1));
    }
    expected_ = total(context_, sum());
    window_ = ops::Window::create(context_, view_of(account_), full_plan(context_),
                                  {.name = "ledger", .fill = ops::WindowFill::Zeros});
  }

  void move(std::size_t thread, Dice& dice) {
    std::vector<double> amount(account_.size(), 1.0 + Dice::roll(dice.own, 9));
    for (std::size_t k = 0; k < amount.size(); ++k) {
      purses_[thread][k] -= amount[k];
    }
    const ops::WindowPutOptions options{
        .destinations = one_of(window_->plan().destinations, 1.0, dice),
        .exclusion = random_exclusion(dice)};
    if (Dice::roll(dice.own, 3) == 0) {
      window_->accumulate_nonblocking(view_of(amount), options).wait();
    } else {
      window_->accumulate(view_of(amount), options);
    }
    run_.count(Kind::Accumulate);
  }

  void collect(Dice& dice) {
    window_->update_then_collect(random_exclusion(dice));
    run_.count(Kind::Update);
  }

  /// Collective.
  void check() {
    ops::barrier(context_);
    window_->update_then_collect();
    const auto found = total(context_, sum());
    for (std::size_t k = 0; k < found.size(); ++k) {
      if (found[k] != expected_[k]) {
        throw Wrong(fmt::format("rank {}, ledger: element {} adds up to {}, not {}",
                                context_.rank(), k, found[k], expected_[k]));
      }
    }
    window_->free();
  }

 private:
  [[nodiscard]] std::vector<double> sum() const {
    std::vector<double> sum = account_;
    for (const auto& purse : purses_) {
      for (std::size_t k = 0; k < sum.size(); ++k) {
        sum[k] += purse[k];
      }
    }
    return sum;
  }

  Context& context_;
  Run& run_;
  std::vector<double> account_;
  std::array<std::vector<double>, kThreads> purses_;
  std::vector<double> expected_;
  std::shared_ptr<ops::Window> window_;
};

/// Tensors whose elements are all equal, except while somebody writes them.
class Uniform {
 public:
  Uniform(Context& context, Run& run)
      : context_(context), run_(run), values_(4096, context.rank()) {
    window_ =
        ops::Window::create(context_, view_of(values_), full_plan(context_), {.name = "uniform"});
  }

  void call(Dice& dice) {
    const ops::WindowGetOptions get{.sources = one_of(window_->plan().sources, 1.0, dice),
                                    .exclusion = ops::Exclusion::Mutex};
    std::vector<double> other(values_.size(), 1.0 + Dice::roll(dice.own, 1000));
    switch (Dice::roll(dice.own, 4)) {
      case 0: {
        const auto lock = window_->lock_self();
        std::ranges::fill(values_, other[0]);
        run_.count(Kind::Lock);
        break;
      }
      case 1:
        window_->put(view_of(other),
                     {.destinations = one_of(window_->plan().destinations, 2.0, dice),
                      .exclusion = random_exclusion(dice)});
        run_.count(Kind::Put);
        break;
      case 2:
        window_->get(get);
        run_.count(Kind::Get);
        break;
      default:
        read((*get.sources)[0], other);
    }
  }

  void check() {
    ops::barrier(context_);
    window_->free();
  }

 private:
  void read(const WeightedRank& source, std::vector<double>& to) {
    window_->update(
        {.weights = {{.self_weight = 0.0, .sources = {source}}}, .output = view_of(to)});
    run_.count(Kind::Update);
    if (std::ranges::any_of(to, [&](double element) { return element != to[0]; })) {
      throw Wrong(fmt::format("rank {}, uniform: the buffer of rank {} was half written",
                              context_.rank(), source.rank));
    }
  }

  Context& context_;
  Run& run_;
  std::vector<double> values_;
  std::shared_ptr<ops::Window> window_;
};

/// Push-sum: halves travel, and with so few of them that float64 holds every sum exactly.
void push_sum(Context& context, Run& run, Dice& dice) {
  constexpr int kMostHalvings = 48;
  std::vector<double> value(64, context.rank() + 1.0);
  const auto window = ops::Window::create(context, view_of(value), full_plan(context),
                                          {.name = "push-sum",
                                           .fill = ops::WindowFill::Zeros,
                                           .associated_weight = ops::AssociatedWeight::On});
  for (int i = 0; i < kMostHalvings / context.size(); ++i) {
    window->accumulate(
        view_of(value),
        {.self_weight = 0.5, .destinations = one_of(window->plan().destinations, 0.5, dice)});
    run.count(Kind::Accumulate);
    if (Dice::roll(dice.own, 3) == 0) {
      window->update_then_collect(random_exclusion(dice));
      run.count(Kind::Update);
    }
  }
  ops::barrier(context);
  window->update_then_collect();
  value.push_back(window->associated_weight());
  const auto found = total(context, value);
  const double size = context.size();
  for (std::size_t k = 0; k < found.size(); ++k) {
    const double expected = k + 1 < found.size() ? size * (size + 1.0) / 2.0 : size;
    if (found[k] != expected) {
      throw Wrong(fmt::format("rank {}, push-sum: element {} adds up to {}, not {}", context.rank(),
                              k, found[k], expected));
    }
  }
  value.pop_back();
  window->free();
}

}  // namespace

void use_windows(Context& context, Run& run, Dice dice) {
  std::uint64_t epoch = 0;
  do {
    constexpr std::array<std::size_t, 4> kCounts{1, 100, 5000, 40'000};
    Ledger ledger(context, run,
                  kCounts[static_cast<std::size_t>(Dice::roll(dice.common, kCounts.size()))]);
    Uniform uniform(context, run);
    ops::barrier(context);
    const auto work = [&](std::size_t thread, Dice own) {
      for (int i = 0; i < kCallsPerEpoch; ++i) {
        switch (Dice::roll(own.own, 3)) {
          case 0:
            ledger.move(thread, own);
            break;
          case 1:
            ledger.collect(own);
            break;
          default:
            uniform.call(own);
        }
      }
    };
    std::exception_ptr failure;
    std::jthread other([&, own = Dice(dice.own(), ++epoch, context.rank())] {
      try {
        work(1, own);
      } catch (...) {
        failure = std::current_exception();
      }
    });
    work(0, dice);
    dice.own.discard(1000);
    other.join();
    if (failure) {
      std::rethrow_exception(failure);
    }
    ledger.check();
    uniform.check();
    push_sum(context, run, dice);
    run.count(Kind::Epoch);
  } while (!all_stop(context, run));
}

}  // namespace bluefog::soak
