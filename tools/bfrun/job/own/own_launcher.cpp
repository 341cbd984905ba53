#include "tools/bfrun/job/own/own_launcher.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tools/bfrun/job/descendants.hpp"
#include "tools/bfrun/job/descriptor.hpp"
#include "tools/bfrun/job/input_pump.hpp"
#include "tools/bfrun/job/own/left_out.hpp"
#include "tools/bfrun/job/own/rank_starter.hpp"
#include "tools/bfrun/job/pipe.hpp"
#include "tools/bfrun/job/rank_line.hpp"
#include "tools/bfrun/job/rank_watchers.hpp"
#include "tools/bfrun/job/signal_watch.hpp"

namespace bluefog::bfrun {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

/// The longest time in which what the ranks have left behind must be dead.
constexpr milliseconds kSweep{1500};

milliseconds sooner(milliseconds one, milliseconds other) {
  if (one < milliseconds(0)) {
    return other;
  }
  return other < milliseconds(0) ? one : std::min(one, other);
}

/// Serves the ranks until all are gone.
class Service {
 public:
  Service(const OwnRanks& ranks, const ChildEvents& events, const SignalWatch& signals,
          RankWatchers& watchers)
      : ranks_(ranks), events_(events), signals_(signals), watchers_(watchers), starter_(ranks) {}

  void run() {
    for (int rank = 0; rank < ranks_.count; ++rank) {
      slots_[rank] = ranks_.slots.at(static_cast<std::size_t>(rank));
      start(rank, Start::First);
    }
    starter_.finish();
    if (ranks_.on_started) {
      ranks_.on_started();
    }
    InputPump pump(starter_.take_input());
    errors_ = starter_.errors();
    while (!watchers_.are_gone()) {
      const milliseconds sleep = act();
      std::vector<pollfd> sources{
          {signals_.descriptor(), POLLIN, 0},
          {errors_, POLLIN, 0},
          {events_.descriptor, POLLIN, 0},
          pump.source(),
          {ranks_.discovery ? ranks_.discovery->descriptor() : -1, POLLIN, 0},
          {ranks_.left_out, POLLIN, 0}};
      for (const auto& [rank, errors] : far_errors_) {
        sources.push_back({errors.get(), POLLIN, 0});
      }
      if (poll(sources.data(), sources.size(), static_cast<int>(sleep.count())) < 0 &&
          errno != EINTR) {
        fail("poll");
      }
      if (sources[1].revents != 0 && !read_available(errors_, events_.on_stderr)) {
        errors_ = -1;
      }
      if (sources[2].revents != 0) {
        events_.on_readable();
      }
      pump.serve(sources[3]);
      if (sources[4].fd >= 0 && sources[4].revents != 0) {
        ranks_.discovery->read();
      }
      if (sources[5].revents != 0) {
        take_left_out(ranks_.take_left_out());
      }
      hear_far();
      pass_signals_on();
      reap();
    }
    hear_all();
  }

 private:
  void start(int rank, Start which) {
    const Slot& slot = slots_.at(rank);
    if (slot.host == kThisMachine) {
      watchers_.add(starter_.start(rank, slot, which), rank);
      return;
    }
    FarRank far = starter_.start_far(rank, slot, which);
    watchers_.add(far.process, rank, std::move(far.control));
    far_errors_[rank] = std::move(far.errors);
  }

  void hear_far() {
    for (auto& [rank, errors] : far_errors_) {
      const auto take = [&, its = rank](std::string_view bytes) {
        events_.on_far_stderr(its, bytes);
      };
      if (errors.get() >= 0 && !read_available(errors.get(), take)) {
        errors.reset();
      }
    }
  }

  /// Does what is due, and returns the time until more is.
  milliseconds act() {
    const auto now = Clock::now();
    milliseconds sleep{-1};
    if (ranks_.discovery != nullptr && !watchers_.are_to_end()) {
      ranks_.discovery->act(now);
      sleep = ranks_.discovery->time_left(now);
    }
    kill_left_out(now);
    sleep = sooner(sleep, left_out_.time_left(now));
    const ChildCare care = events_.before_sleep();
    if (care.kill) {
      watchers_.kill_all();
    }
    const bool is_done = serve(care.ranks);
    watchers_.act_on_time(Clock::now(), care.spare_others);
    return is_done ? sooner(sooner(sleep, care.sleep), watchers_.time_left(Clock::now()))
                   : milliseconds(0);
  }

  void take_left_out(int rank) {
    if (watchers_.has(rank)) {
      left_out_.take(rank, Clock::now());
    }
  }

  void kill_left_out(Clock::time_point now) {
    for (const int rank : left_out_.overdue(now)) {
      say(fmt::format("rank {} is killed: the others have gone on without it {} s ago", rank,
                      LeftOut::kGrace.count() / 1000));
      watchers_.have_killed(rank);
    }
  }

  /// False where a rank could not be started: what becomes of it is to be asked anew.
  bool serve(const RanksDue& due) {
    for (const int rank : due.given_up) {
      watchers_.count(failures_[rank]);
    }
    if (!due.end.empty()) {
      watchers_.begin_end();
    }
    watchers_.expect(-due.left);
    for (const int rank : due.leave) {
      watchers_.tell_to_leave(rank);
    }
    for (const int rank : due.kill) {
      watchers_.kill_rank(rank);
    }
    bool is_done = true;
    for (const int rank : due.start_anew) {
      is_done = start_later(rank, Start::First) && is_done;
    }
    for (const int rank : due.start) {
      is_done = start_later(rank, Start::Joins) && is_done;
    }
    for (const auto& [rank, slot] : due.add) {
      slots_[rank] = slot;
      watchers_.expect(1);
      failures_[rank] = {.code = kNotExecutableCode};  // where it cannot be started
      is_done = start_later(rank, Start::Joins) && is_done;
    }
    return is_done;
  }

  bool start_later(int rank, Start which) {
    if (watchers_.are_to_end()) {
      return true;
    }
    try {
      start(rank, which);
      return true;
    } catch (const TransportError& error) {
      say(fmt::format("rank {} could not be started: {}", rank, error.what()));
      take_end(rank, failures_[rank]);
      return false;
    }
  }

  void reap() {
    const auto ended = watchers_.reap([this](pid_t process, const ExitStatus& end) {
      if (ranks_.discovery != nullptr) {
        ranks_.discovery->take_end(process, end, Clock::now());
      }
    });
    if (!ended.empty()) {
      hear_all();
    }
    for (const auto& [rank, end] : ended) {
      constexpr int kOfSsh = 255;
      if (far_errors_.erase(rank) > 0 && end.code == kOfSsh) {
        say(fmt::format("rank {}: the connection to host {} could not be made, or has ended", rank,
                        slots_.at(rank).host));
      }
      take_end(rank, end);
    }
  }

  /// @param end how its process has ended, or the one before where it could not be started.
  void take_end(int rank, const ExitStatus& end) {
    left_out_.forget(rank);
    const bool has_failed = end.shell_code() != 0;
    const bool may_start_again = !watchers_.are_to_end() && ranks_.may_start_later;
    const RankFate fate = events_.on_rank_end(rank, has_failed, may_start_again);
    if (fate == RankFate::StartsAgain) {
      failures_[rank] = end;
    } else if (fate == RankFate::Left) {
      watchers_.expect(-1);
    } else if (fate == RankFate::Absent) {
      watchers_.count(failures_[rank]);
    } else if (has_failed) {
      watchers_.count(end);
    }
  }

  void pass_signals_on() {
    for (const signalfd_siginfo& info : signals_.take()) {
      const int number = static_cast<int>(info.ssi_signo);
      const bool asks_for_ranks = number == more_ranks_signal() || number == fewer_ranks_signal();
      if (number == SIGCHLD || (!asks_for_ranks && !once_.is_new(number))) {
        continue;
      }
      events_.on_signal(number);
      if (!asks_for_ranks) {
        watchers_.pass_on(number);
      }
    }
  }

  /// The words of a process are all there once it is gone; others may keep the pipe open.
  void hear_all() {
    read_available(starter_.errors(), events_.on_stderr);
    hear_far();
    if (events_.descriptor >= 0) {
      events_.on_readable();
    }
  }

  const OwnRanks& ranks_;
  const ChildEvents& events_;
  const SignalWatch& signals_;
  RankWatchers& watchers_;
  RankStarter starter_;
  SignalsOnce once_;
  LeftOut left_out_;
  int errors_ = -1;  ///< those of this machine's ranks, as long as there are any
  std::map<int, Descriptor> far_errors_;  ///< by rank
  std::map<int, Slot> slots_;             ///< of ranks
  std::map<int, ExitStatus> failures_;    ///< of ranks that are started again
};

}  // namespace

ExitStatus run_own_ranks(const OwnRanks& ranks, const ChildEvents& events) {
  const SignalWatch signals;
  signals.refuse_start(ranks.words.front());
  signal(SIGPIPE, SIG_IGN);
  const Descendants descendants;
  RankWatchers watchers(ranks);
  try {
    Service(ranks, events, signals, watchers).run();
  } catch (const TransportError&) {
    watchers.kill_all();
    descendants.kill_all(kSweep);
    throw;
  }
  descendants.kill_all(kSweep);
  return watchers.status();
}

}  // namespace bluefog::bfrun
