// A program that initialised MPI for one thread at a time, on one rank at least.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/window.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void put_through_a_window(Context& context) {
  float value = 1.0F;
  const BufferView view{.data = &value, .count = 1};
  const auto window = ops::Window::create(
      context, view, topology::ring(context.size()).plan_for(context.rank()), {.name = "w"});
  window->put(view);
  ops::barrier(context);
  window->update();
  EXPECT_EQ(value, 1.0F);
  window->free();
}

void add_up(Context& context) {
  float value = 1.0F;
  ops::allreduce(context, {.data = &value, .count = 1}, {.reduction = ops::Reduction::Sum});
  EXPECT_EQ(value, static_cast<float>(context.size()));
}

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UnsupportedError& error) {
    return error.what();
  }
  return "nothing was refused";
}

// MPI cannot be started twice in a process: one test walks through all of it.
TEST(MpiThreadSerialized, WhatNeedsSeveralThreadsIsRefusedWhereMpiCarriesIt) {
  const char* const local_rank = std::getenv("LOCAL_RANK");
  const bool is_odd = local_rank != nullptr && std::atoi(local_rank) % 2 == 1;
  int provided = MPI_THREAD_SINGLE;
  ASSERT_EQ(MPI_Init_thread(nullptr, nullptr, is_odd ? MPI_THREAD_MULTIPLE : MPI_THREAD_SERIALIZED,
                            &provided),
            MPI_SUCCESS);
  int lowest = MPI_THREAD_SINGLE;
  MPI_Allreduce(&provided, &lowest, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  if (lowest != MPI_THREAD_SERIALIZED) {
    MPI_Finalize();
    GTEST_SKIP() << "this MPI does not give MPI_THREAD_SERIALIZED where it is asked for";
  }
  Settings settings;
  settings.timeout = std::chrono::seconds(20);
  {
    // Inside a host nothing but the launch needs MPI.
    const auto context = Context::create(settings);
    put_through_a_window(*context);
    add_up(*context->duplicate());
  }
  settings.transport = TransportChoice::Mpi;
  const auto context = Context::create(settings);
  add_up(*context);
  if (context->size() > 1) {
    const std::string levels =
        "expected MPI_THREAD_MULTIPLE, found MPI_THREAD_SERIALIZED on rank 0";
    EXPECT_THAT(
        refusal_of([&] { put_through_a_window(*context); }),
        AllOf(HasSubstr(fmt::format("rank {}, win_create", context->rank())), HasSubstr(levels)));
    EXPECT_THAT(
        refusal_of([&] { (void)context->duplicate(); }),
        AllOf(HasSubstr(fmt::format("rank {}, duplicate", context->rank())), HasSubstr(levels)));
    add_up(*context);
  }
  context->close();
  MPI_Finalize();
}

}  // namespace
}  // namespace bluefog
