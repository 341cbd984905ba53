#include "bluefog_cpp/bootstrap/store/beside.hpp"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "bluefog_cpp/base/signals_elsewhere.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kCheckPeriod(50);
constexpr std::chrono::seconds kGrace(2);

struct Shared {
  std::atomic<bool> is_over{false};
  std::promise<void> end;
};

std::thread start_thread(std::function<void()> run) {
  const SignalsElsewhere during_its_birth;
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& error) {
    throw TransportError(fmt::format("the system has no thread left: {}", error.what()));
  }
}

// Waits for the body's end; false where it is stuck.
bool await(const std::future<void>& end, Deadline until, const std::function<void()>& check) {
  while (end.wait_for(kCheckPeriod) != std::future_status::ready) {
    if (until.expired()) {
      return false;
    }
    if (check) {
      check();
    }
  }
  return true;
}

Deadline with_grace(Deadline deadline) {
  return deadline.is_set() ? Deadline::after(std::max(deadline.when() - Deadline::Clock::now(),
                                                      Deadline::Clock::duration::zero()) +
                                             kGrace)
                           : deadline;
}

}  // namespace

void run_beside(std::function<void(const std::atomic<bool>&)> body,
                const std::function<void()>& check, Deadline deadline, const std::string& what) {
  const auto shared = std::make_shared<Shared>();
  std::future<void> end = shared->end.get_future();
  std::thread thread = start_thread([shared, body = std::move(body)]() mutable {
    std::exception_ptr error;
    try {
      body(shared->is_over);
    } catch (...) {
      error = std::current_exception();
    }
    body = nullptr;  // what it holds goes before the caller goes on
    error ? shared->end.set_exception(std::move(error)) : shared->end.set_value();
  });
  const auto leave = [&](Deadline longest) {
    shared->is_over = true;
    const bool has_ended = await(end, longest, {});
    has_ended ? thread.join() : thread.detach();
    return has_ended;
  };
  bool has_ended = false;
  try {
    has_ended = await(end, with_grace(deadline), check);
  } catch (...) {
    leave(Deadline::after(kGrace));
    throw;
  }
  if (!has_ended) {
    shared->is_over = true;
    thread.detach();
    throw TimeoutError(
        fmt::format("{}: a call of the store did not come back within {:.3g} s "
                    "(BLUEFOG_TIMEOUT)",
                    what, deadline.timeout().count()));
  }
  thread.join();
  end.get();
}

}  // namespace bluefog
