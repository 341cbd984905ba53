// How windows begin and end, and which calls they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/engine/operation.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/window.hpp"
#include "tests/bodies/window_plans.hpp"
#include "tests/support/error_of.hpp"
#include "tests/support/ranks.hpp"

namespace bluefog::testing {
namespace {

using ops::Window;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Window, RanksThatDoNotAgreeAllGetTheSameError) {
  on_ranks({.at_least = 2}, [](Context& context) {
    std::vector<float> value(5);
    const auto create = [&](std::int64_t count, const NeighborPlan& plan, const std::string& name) {
      (void)Window::create(context, {.data = value.data(), .count = count}, plan, {.name = name});
    };
    const NeighborPlan plan = full_plan(context);
    const int last = context.size() - 1;
    try {
      create(context.rank() == last ? 5 : 4, plan, "a");
      ADD_FAILURE() << "expected an error";
    } catch (const MismatchError& error) {
      EXPECT_THAT(error.what(), HasSubstr("float32[4]"));
      EXPECT_THAT(error.what(), HasSubstr("float32[5]"));
    }
    NeighborPlan deaf = plan;
    if (context.rank() == last) {
      deaf.sources.clear();
    }
    try {
      create(5, deaf, "b");
      ADD_FAILURE() << "expected an error";
    } catch (const MismatchError& error) {
      EXPECT_THAT(error.what(), HasSubstr("does not hear it"));
    }
    EXPECT_THROW(create(5, plan, context.rank() == 0 ? "c" : "d"), MismatchError);
    const auto counting =
        context.rank() == last ? ops::AssociatedWeight::On : ops::AssociatedWeight::Off;
    EXPECT_THROW((void)Window::create(context, {.data = value.data(), .count = 5}, plan,
                                      {.associated_weight = counting}),
                 MismatchError);
    if (context.rank() == 0) {
      EXPECT_THROW(create(-1, plan, "e"), InvalidArgument);
    } else {
      EXPECT_THROW(create(5, plan, "e"), PeerFailure);
    }
    const auto window = Window::create(context, {.data = value.data(), .count = 5}, plan);
    window->put({.data = value.data(), .count = 5});
    ops::barrier(context);
    window->free();
  });
}

TEST(Window, WrongArgumentsAreRefused) {
  on_ranks({.at_least = 2}, [](Context& context) {
    const NeighborPlan plan = ring_plan(context);
    std::vector<float> value(5);
    const BufferView view{.data = value.data(), .count = 5};
    const auto window = Window::create(context, view, plan);
    EXPECT_THROW(window->put({.data = value.data(), .count = 4}), InvalidArgument);
    EXPECT_THROW(window->put({.data = nullptr, .count = 5}), InvalidArgument);
    EXPECT_THROW(window->put({.data = value.data(), .count = 5, .device = {DeviceKind::Cuda, 0}}),
                 InvalidArgument);
    EXPECT_THROW(window->put({.data = value.data(), .count = 5, .dtype = Dtype::Float16}),
                 InvalidArgument);
    EXPECT_THROW(window->put(view, {.destinations = {{{.rank = context.rank()}}}}),
                 InvalidArgument);
    EXPECT_THROW(window->get({.sources = {{{.rank = context.size()}}}}), InvalidArgument);
    const int source = plan.sources.front().rank;
    EXPECT_THROW(window->get({.sources = {{{.rank = source}, {.rank = source}}}}), InvalidArgument);
    EXPECT_THROW(window->update({.weights = {{.sources = {{.rank = -1}}}}}), InvalidArgument);
    EXPECT_THROW((void)window->lock({context.size()}), InvalidArgument);
    ops::barrier(context);
    window->free();
    EXPECT_THROW(window->put(view), StateError);
    EXPECT_THROW(window->update(), StateError);
    EXPECT_THROW(window->free(), StateError);
  });
}

TEST(Window, CreatingWithoutAPeerNamesTheCallAndTheRankAndTheContextGoesOn) {
  const Ranks ranks{.at_least = 2, .at_most = 3, .settings = [](Settings& settings, int) {
                      settings.timeout = std::chrono::milliseconds(700);
                    }};
  on_ranks(ranks, [](Context& context) {
    float value = 1.0F;
    const BufferView view{.data = &value, .count = 1};
    const auto create = [&] { return Window::create(context, view, full_plan(context)); };
    if (context.rank() == 0) {
      try {
        (void)create();
        ADD_FAILURE() << "expected an error";
      } catch (const TimeoutError& error) {
        EXPECT_THAT(error.what(), AllOf(HasSubstr("win_create"), HasSubstr("from rank 1")));
      }
      meet(context);
    } else {
      meet(context);
      EXPECT_THROW((void)create(), PeerFailure);
    }
    meet(context);
    const auto window = create();
    window->put(view);
    window->free();
  });
}

TEST(Window, CreatingBesideAnotherCallNamesTheWindowAndThatCall) {
  on_ranks({.at_least = 2, .at_most = 2}, [](Context& context) {
    std::vector<float> values(3, 1.0F);
    const BufferView view{.data = values.data(), .count = 3};
    try {
      if (context.rank() == 0) {
        (void)Window::create(context, view, full_plan(context), {.name = "momenta"});
      } else {
        ops::allreduce(context, view);
      }
      ADD_FAILURE() << "expected an error";
    } catch (const MismatchError& error) {
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr("0 called win_create 'momenta'"),
                        HasSubstr("1 called allreduce(float32[3])"), Not(HasSubstr("bytes"))));
    }
    const auto window = Window::create(context, view, full_plan(context), {.name = "momenta"});
    window->free();
  });
}

// A rank that got this error while it creates, frees or copies would leave the others alone.
TEST(Window, CreatingAndFreeingLeaveLateMismatchesToTheNextCall) {
  on_ranks({.at_least = 2, .at_most = 3}, [](Context& context) {
    const bool is_last = context.rank() == context.size() - 1;
    std::vector<float> values(4, 1.0F);
    const BufferView view{.data = values.data(), .count = 4};
    const std::vector<std::function<void()>> calls{
        [&] { Window::create(context, view, full_plan(context))->free(); },
        [&] { ops::barrier(*context.duplicate()); }};
    for (const auto& call : calls) {
      const auto broadcast = [&] {
        ops::broadcast(context, {.data = values.data(), .count = is_last ? 3 : 4}, 0);
      };
      if (is_last) {
        EXPECT_THROW(broadcast(), MismatchError);
      } else {
        broadcast();
      }
      meet(context);
      call();
      if (context.rank() == 0) {
        EXPECT_THROW(ops::barrier(context), MismatchError);
      } else {
        ops::barrier(context);
      }
      meet(context);
    }
  });
}

TEST(Window, ARankThatLeftIsToldInEveryCall) {
  on_ranks({.at_least = 2, .expect_usable = false}, [](Context& context) {
    float value = 1.0F;
    const BufferView view{.data = &value, .count = 1};
    const auto window = Window::create(context, view, full_plan(context));
    const int last = context.size() - 1;
    meet(context);
    if (context.rank() == last) {
      context.close();
    }
    meet(context);
    if (context.rank() != last) {
      for (int i = 0; i < 20; ++i) {
        try {
          window->put(view, {.destinations = {{{.rank = last}}}});
          ADD_FAILURE() << "expected an error in call " << i;
        } catch (const PeerFailure& failure) {
          EXPECT_EQ(failure.rank(), last) << failure.what();
        }
      }
    }
    meet(context);
  });
}

// Ranks share memory here; without it the error is that of any call that one rank does not make.
TEST(Window, FreeingWhatAPeerHasDestroyedIsRefused) {
  on_ranks({.at_least = 2, .at_most = 3, .layouts = {Layout::OneHost}}, [](Context& context) {
    float value = 1.0F;
    auto window =
        Window::create(context, {.data = &value, .count = 1}, full_plan(context), {.name = "one"});
    if (context.rank() == 0) {
      window.reset();
    }
    meet(context);
    if (context.rank() == 0) {
      context.core().engine().refuse("nothing to free here");  // the others count a call
    } else {
      try {
        window->free();
        ADD_FAILURE() << "expected an error";
      } catch (const WindowGoneError& gone) {
        EXPECT_THAT(gone.what(), AllOf(HasSubstr("window 'one', win_free"),
                                       HasSubstr("rank 0 has destroyed it")));
      }
    }
    meet(context);
  });
}

TEST(Window, AFreedWindowSaysSo) {
  on_ranks({.at_least = 2}, [](Context& context) {
    float value = 0.0F;
    const BufferView view{.data = &value, .count = 1};
    auto window = Window::create(context, view, full_plan(context), {.name = "gone"});
    if (context.rank() == 0) {
      window.reset();
    }
    ops::barrier(context);
    if (context.rank() != 0) {
      try {
        window->put(view);
        ADD_FAILURE() << "expected an error";
      } catch (const WindowGoneError& error) {
        EXPECT_THAT(error.what(), HasSubstr("rank 0 has freed"));
        EXPECT_EQ(error.rank(), 0);
      }
    }
    ops::barrier(context);
  });
}

/// A call of one rank that keeps its engine busy while `body` runs.
class BusyCall final : public Operation {
 public:
  explicit BusyCall(std::function<void()> body) : body_(std::move(body)) {}
  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }
  bool next(ExchangeSpec& /*spec*/) override {
    body_();
    return false;
  }
  void receive(std::size_t /*offset*/, std::size_t /*bytes*/,
               std::span<const Piece> /*pieces*/) override {}

 private:
  std::function<void()> body_;
  Envelope envelope_ = Envelope::make(OpKind::Barrier, Dtype::UInt8, 0);
};

// A rank that has finished frees its windows and leaves, while another one looks whether it lives.
TEST(Window, ARankThatLeavesInTheMiddleOfALookHasFinished) {
  Ranks ranks{.at_least = 2, .at_most = 2, .layouts = {Layout::OneHost}};
  ranks.expect_usable = false;
  on_ranks(ranks, [](Context& context) {
    float value = 1.0F;
    const BufferView view{.data = &value, .count = 1};
    auto window = Window::create(context, view, full_plan(context));
    if (context.rank() == 0) {
      meet(context);
      window.reset();
      context.close();
      meet(context);
      return;
    }
    std::atomic<bool> is_busy = false;
    std::jthread putter([&] {
      while (!is_busy) {
        std::this_thread::yield();
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(40));  // the last look is an old one
      error_of<WindowGoneError>([&] { window->put(view); });
    });
    BusyCall call([&] {
      is_busy = true;
      std::this_thread::sleep_for(std::chrono::milliseconds(300));  // the put waits for the engine
      meet(context);
      meet(context);  // rank 0 has left
    });
    context.core().engine().run(call);
    putter.join();
  });
}

TEST(Window, AFreedWindowThatEndsLaterLeavesTheNextOneAlone) {
  on_ranks([](Context& context) {
    float value = 1.0F;
    const BufferView view{.data = &value, .count = 1};
    const auto plan = full_plan(context);
    auto window = Window::create(context, view, plan, {.name = "first"});
    window->free();
    auto next = Window::create(context, view, plan, {.name = "next"});  // in the same memory
    window.reset();
    meet(context);
    next->put(view);
    meet(context);
    next->update();
    EXPECT_EQ(value, 1.0F);
    ops::barrier(context);
  });
}

TEST(Window, AnOutputThatOverlapsTheTensorIsRefused) {
  on_ranks([](Context& context) {
    std::vector<float> memory(6, 1.0F);
    const auto window =
        Window::create(context, {.data = memory.data(), .count = 4}, full_plan(context));
    EXPECT_THROW(window->update({.output = BufferView{.data = memory.data() + 2, .count = 4}}),
                 InvalidArgument);
    EXPECT_EQ(memory, std::vector<float>(6, 1.0F));
    window->update({.output = BufferView{.data = memory.data(), .count = 4}});
    ops::barrier(context);
  });
}

}  // namespace
}  // namespace bluefog::testing
