// Calls that wait: the flight record tells for whom, and bftrace says it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/neighbor_allreduce.hpp"
#include "ops/window.hpp"
#include "tests/support/ranks.hpp"
#include "tools/bftrace/merge.hpp"
#include "tools/bftrace/stall.hpp"
#include "topology/static_graphs.hpp"

namespace bluefog::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

/// Runs `body` on `ranks` ranks that give up after a moment and keep flight
/// records in its folder.
void with_records(int ranks, Layout layout,
                  const std::function<void(Context&, const std::filesystem::path&)>& body) {
  const auto folder =
      std::filesystem::temp_directory_path() / fmt::format("bluefog_stall_{}", ::getpid());
  std::filesystem::create_directories(folder);
  on_ranks({.at_least = ranks,
            .at_most = ranks,
            .layouts = {layout},
            .settings =
                [&](Settings& settings, int) {
                  settings.flight_recorder = folder / "record";
                  settings.timeout = std::chrono::milliseconds(600);
                  settings.stall_warning = std::chrono::milliseconds(200);
                },
            .expect_usable = false},
           [&](Context& context) { body(context, folder); });
  std::filesystem::remove_all(folder);
}

bftrace::FlightRecord record_of(int rank, const std::filesystem::path& folder) {
  const std::string path = folder / fmt::format("record{}.json", rank);
  return bftrace::parse_record(path, bftrace::read_file(path));
}

const bftrace::RecordedCall& last_window_call(const bftrace::FlightRecord& record) {
  for (std::size_t i = record.calls.size(); i > 0; --i) {
    if (record.calls[i - 1].is_window_call) {
      return record.calls[i - 1];
    }
  }
  throw InvalidArgument("no call of a window was recorded");
}

/// The ranks' process ids.
std::vector<int> processes_of(Context& context) {
  const int own = ::getpid();
  std::vector<int> processes;
  for (const auto& blob :
       context.core().bootstrap().allgather(std::as_bytes(std::span(&own, 1)), Deadline::never())) {
    std::memcpy(&processes.emplace_back(), blob.data(), sizeof(int));
  }
  return processes;
}

// Each thread stops by itself, the one that answers others' questions perhaps last.
void wait_until_stopped(int process) {
  const auto runs = [](const std::filesystem::directory_entry& thread) {
    std::ifstream file(thread.path() / "stat");
    std::string line;
    std::getline(file, line);
    const std::size_t end_of_name = line.rfind(')');
    return end_of_name != std::string::npos && line.substr(end_of_name, 3) != ") T";
  };
  const std::filesystem::path threads = fmt::format("/proc/{}/task", process);
  while (std::ranges::any_of(std::filesystem::directory_iterator(threads), runs)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

std::shared_ptr<ops::Window> make_window(Context& context, float& value) {
  return ops::Window::create(context, {.data = &value, .count = 1},
                             topology::fully_connected(context.size()).plan_for(context.rank()),
                             {.name = "w"});
}

/// The record is written before the messages of the call are dropped.
TEST(MessageStalls, AReaderThatTakesNothingStandsInTheRecordOfTheEnd) {
  with_records(2, Layout::OneHost, [](Context& context, const std::filesystem::path& folder) {
    std::vector<float> values(std::size_t{1} << 24U);  // more than what waits for a reader
    if (context.rank() == 0) {
      auto plan = std::make_shared<NeighborPlan>(NeighborPlan::alone(0, 2));
      plan->destinations.push_back({.rank = 1});
      const BufferView buffer{.data = values.data(), .count = std::ssize(values)};
      EXPECT_THROW(ops::neighbor_allreduce(context, buffer, plan), TimeoutError);
      EXPECT_THAT(record_of(0, folder).calls.back().not_taken_by, ::testing::ElementsAre(1));
    }
    meet(context);
  });
}

class WindowStalls : public ::testing::TestWithParam<Layout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, WindowStalls,
                         ::testing::Values(Layout::OneHost, Layout::TwoHosts, Layout::NetworkOnly));

// Rank 1 holds the mutex of rank 2, and rank 0 wants it.
TEST_P(WindowStalls, AMutexThatAnotherRankHoldsIsNamedWithItsHolder) {
  with_records(3, GetParam(), [](Context& context, const std::filesystem::path& folder) {
    float value = 0.0F;
    const auto window = make_window(context, value);
    if (context.rank() == 1) {
      const auto lock = window->lock({2});
      meet(context);
      meet(context);
    } else if (context.rank() == 0) {
      meet(context);
      EXPECT_THROW(window->put({.data = &value, .count = 1}, {.destinations = {{{.rank = 2}}},
                                                              .exclusion = ops::Exclusion::Mutex}),
                   TimeoutError);
      const auto record = record_of(0, folder);
      const auto& call = last_window_call(record);
      EXPECT_EQ(call.text, "win_put(float32[1], window 'w')");
      EXPECT_EQ(call.state, "running");
      EXPECT_EQ(call.what, "the mutex of rank 2, which rank 1 holds");
      EXPECT_EQ(call.waits_for, std::vector<int>{1});
      EXPECT_THAT(bftrace::explain_stall({record}),
                  HasSubstr("Rank 1 is waited for and left no record"));
      EXPECT_THAT(bftrace::explain_stall({record}),
                  HasSubstr("Rank 0 waits for rank 1 in "
                            "win_put(float32[1], window 'w'): the mutex "
                            "of rank 2, which rank 1 holds."));
      meet(context);
    } else {
      meet(context);
      meet(context);
    }
    // The one that gave up has not taken the mutex after all.
    if (context.rank() == 2) {
      const auto lock = window->lock_self();
    }
    meet(context);
  });
}

// A barrier that stalls shows the mutexes that its rank holds meanwhile.
TEST_P(WindowStalls, MutexesThatAreHeldAreShown) {
  with_records(2, GetParam(), [](Context& context, const std::filesystem::path& folder) {
    float value = 0.0F;
    const auto window = make_window(context, value);
    if (context.rank() == 0) {
      const auto lock = window->lock({0, 1});
      EXPECT_THROW(ops::barrier(context), TimeoutError);
      const auto record = record_of(0, folder);
      const auto& call = last_window_call(record);
      EXPECT_EQ(call.text, "mutex(float32[1], window 'w')");
      EXPECT_EQ(call.state, "held");
      EXPECT_EQ(call.what, "the mutex of rank 0, 1");
    }
    meet(context);
  });
}

TEST(WindowStall, AnOwnerThatDoesNotAnswerIsNamed) {
  with_records(2, Layout::TwoHosts, [](Context& context, const std::filesystem::path& folder) {
    if (context.core().bootstrap().in_process()) {
      return;  // a thread cannot be stopped
    }
    const std::vector<int> processes = processes_of(context);
    float value = 0.0F;
    const auto window = make_window(context, value);
    meet(context);
    if (context.rank() == 0) {
      ::kill(processes[1], SIGSTOP);
      wait_until_stopped(processes[1]);  // the signal takes effect when the process runs again
      EXPECT_THROW(window->get(), TimeoutError);
      ::kill(processes[1], SIGCONT);
      const auto record = record_of(0, folder);
      const auto& call = last_window_call(record);
      EXPECT_EQ(call.text, "win_get(float32[1], window 'w')");
      EXPECT_EQ(call.what, "an answer of rank 1");
      EXPECT_THAT(bftrace::explain_stall({record}),
                  HasSubstr("Rank 0 waits for rank 1 in "
                            "win_get(float32[1], window 'w'): an answer "
                            "of rank 1."));
    }
    meet(context);
  });
}

// Rank 1 comes to the call when rank 0 has given it up, and finds nobody, in this call or the next.
TEST(Stall, ARankThatWasStoppedHoldsUpTheOthers) {
  with_records(2, Layout::OneHost, [](Context& context, const std::filesystem::path& folder) {
    if (context.core().bootstrap().in_process()) {
      return;  // a thread cannot be stopped
    }
    const std::vector<int> processes = processes_of(context);
    float value = 1.0F;
    const auto call = [&] {
      ops::allreduce(context, {.data = &value, .count = 1}, {.name = "late"});
    };
    if (context.rank() == 0) {
      wait_until_stopped(processes[1]);
      EXPECT_THROW(call(), TimeoutError);
      ::kill(processes[1], SIGCONT);
    } else {
      std::raise(SIGSTOP);
      EXPECT_THROW(
          {
            call();  // what rank 0 sent may be there
            call();
          },
          Error);
    }
    // Each process has a folder of its own.
    const std::string own =
        bftrace::read_file(folder / fmt::format("record{}.json", context.rank()));
    std::vector<bftrace::FlightRecord> records;
    for (const auto& blob :
         context.core().bootstrap().allgather(std::as_bytes(std::span(own)), Deadline::never())) {
      records.push_back(bftrace::parse_record(
          "a record", {reinterpret_cast<const char*>(blob.data()), blob.size()}));
    }
    EXPECT_THAT(
        bftrace::explain_stall(records),
        ContainsRegex("\n\nRank 1 held up rank 0: it began call [0-9]+, "
                      "allreduce\\(float32\\[1\\], name 'late'\\), [0-9.]+ s after rank 0 had "
                      "begun to wait for it"));
    meet(context);
  });
}

}  // namespace
}  // namespace bluefog::testing
