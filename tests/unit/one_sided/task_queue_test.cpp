#include "bluefog_cpp/one_sided/task_queue.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <vector>

#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

TEST(TaskQueue, RunsInOrderAndPassesErrorsOn) {
  TaskQueue queue("a test", {});
  std::vector<int> order;
  std::vector<Work> works;
  for (int i = 0; i < 50; ++i) {
    works.push_back(queue.submit([&order, i] { order.push_back(i); }));
  }
  const Work failing = queue.submit([] { throw std::runtime_error("no"); });
  const auto append = [&order] { order.push_back(50); };
  queue.run(append, [&] { return append; });
  EXPECT_THROW(failing.wait(), std::runtime_error);
  EXPECT_THROW(failing.wait(), std::runtime_error);
  ASSERT_EQ(order.size(), 51U);
  for (int i = 0; i <= 50; ++i) {
    EXPECT_EQ(order[static_cast<std::size_t>(i)], i);
  }
  for (const Work& work : works) {
    EXPECT_TRUE(work.done());
  }
}

TEST(TaskQueue, AnInterruptEndsTheWaitNotTheTask) {
  TaskQueue queue("a test", [] { throw std::runtime_error("interrupted"); });
  std::promise<void> go;
  std::atomic<bool> has_run{false};
  const Work work = queue.submit([&] {
    go.get_future().wait();
    has_run = true;
  });
  EXPECT_THROW(work.wait(), std::runtime_error);
  EXPECT_FALSE(has_run);
  go.set_value();
  queue.drain();
  EXPECT_TRUE(has_run);
}

TEST(TaskQueue, WhatHasNotBegunFailsWhenItCloses) {
  TaskQueue queue("a test", {});
  std::promise<void> go;
  std::promise<void> begun;
  const Work first = queue.submit([&] {
    begun.set_value();
    go.get_future().wait();
  });
  const Work second = queue.submit([] {});
  begun.get_future().wait();
  std::thread closing([&] { queue.close(); });
  EXPECT_THROW(second.wait(), StateError);
  go.set_value();
  closing.join();
  first.wait();
  EXPECT_THROW((void)queue.submit([] {}), StateError);
  EXPECT_THROW((void)queue.run([] {}, [] { return [] {}; }), StateError);
}

}  // namespace
}  // namespace bluefog
