#include "tools/bfrun/job/ears.hpp"

#include <sys/epoll.h>

#include <map>
#include <string_view>
#include <utility>

#include "tools/bfrun/job/rank_report.hpp"
#include "tools/bfrun/job/signal_watch.hpp"

namespace bluefog::bfrun {

Ears::Ears(const std::string& key, int descriptors) : ranks_(key, descriptors) {}

void Ears::hear_hosts(const std::vector<std::string>& addresses, std::string secret,
                      std::chrono::seconds silence) {
  hosts_.emplace(addresses, std::move(secret), silence);
  Descriptor both(epoll_create1(EPOLL_CLOEXEC));
  for (const int descriptor : {ranks_.descriptor(), hosts_->descriptor()}) {
    if (descriptor < 0) {
      continue;
    }
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = descriptor;
    if (epoll_ctl(both.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) {
      return hosts_.reset();
    }
  }
  both_ = std::move(both);
}

int Ears::descriptor() const { return both_.get() >= 0 ? both_.get() : ranks_.descriptor(); }

void Ears::serve(const RankLine::Listener& ranks, const HostLine::Listener& hosts) {
  if (ranks_.descriptor() >= 0) {
    ranks_.serve(ranks);
  }
  if (hosts_) {
    hosts_->serve(hosts);
  }
}

int run_and_follow(const RunRanks& run, const std::string& key, Ears& ears, JobMonitor& monitor) {
  ReportFilter filter(key);
  const auto take = [&](const RankReport& report) {
    for (const auto& text : monitor.take(report)) {
      say(text);
    }
  };
  const auto on_stderr = [&](std::string_view bytes) {
    write_to_stderr(filter.feed(bytes));
    for (const auto& report : filter.take_reports()) {
      take(report);
    }
  };
  std::map<int, ReportFilter> far_filters;  // what is cut between two pieces is a rank's own
  const auto on_far_stderr = [&](int rank, std::string_view bytes) {
    ReportFilter& own = far_filters.try_emplace(rank, key).first->second;
    write_to_stderr(own.feed(bytes));
    for (const auto& report : own.take_reports()) {
      take(report);
    }
  };
  const auto before_sleep = [&] {
    const auto now = JobMonitor::Clock::now();
    for (const auto& text : monitor.due_lines(now)) {
      say(text);
    }
    RanksDue ranks = monitor.take_due(now);
    for (const auto& text : ranks.lines) {
      say(text);
    }
    const bool kill = monitor.wants_kill(now);
    return ChildCare{.sleep = monitor.time_left(now),
                     .kill = kill,
                     .spare_others = monitor.awaits_earlier_end(),
                     .ranks = std::move(ranks)};
  };
  const auto on_rank_end = [&](int rank, bool has_failed, bool may_start_again) {
    if (auto far = far_filters.extract(rank)) {
      write_to_stderr(far.mapped().finish());
    }
    std::vector<std::string> lines;
    RankFate fate = RankFate::Over;
    if (monitor.take_left(rank, lines)) {
      fate = RankFate::Left;
    } else if (!has_failed && monitor.is_absent(rank)) {
      fate = RankFate::Absent;
    } else if (has_failed && may_start_again) {
      auto decision = monitor.decide_restart(rank);
      lines = std::move(decision.lines);
      fate = decision.is_granted ? RankFate::StartsAgain : RankFate::Over;
    }
    for (const auto& text : lines) {
      say(text);
    }
    if ((fate == RankFate::Over || fate == RankFate::Absent) && monitor.growth() != nullptr) {
      monitor.growth()->take_over(rank, has_failed || fate == RankFate::Absent);
    }
    return fate;
  };
  const auto on_signal = [&](int number) {
    if (number != more_ranks_signal() && number != fewer_ranks_signal()) {
      return monitor.take_signal(number);
    }
    const std::string text =
        monitor.growth() == nullptr
            ? "asked for another number of ranks, which is fixed: expected --max-np N"
            : monitor.growth()->take_wish(number == more_ranks_signal() ? 1 : -1);
    if (!text.empty()) {
      say(text);
    }
  };
  const RankLine::Listener ranks{take, [&](int rank) { monitor.take_watcher_end(rank); }};
  const HostLine::Listener hosts{[&](int rank, const std::string& why) {
                                   for (const auto& text : monitor.take_loss(rank, why)) {
                                     say(text);
                                   }
                                 },
                                 [&](int rank) { monitor.take_far_end(rank); }};
  const auto status = run({.on_stderr = on_stderr,
                           .on_signal = on_signal,
                           .before_sleep = before_sleep,
                           .descriptor = ears.descriptor(),
                           .on_readable = [&] { ears.serve(ranks, hosts); },
                           .on_far_stderr = on_far_stderr,
                           .on_rank_end = on_rank_end});
  write_to_stderr(filter.finish());
  for (const auto& text : monitor.closing_lines(status)) {
    say(text);
  }
  return monitor.exit_code(status);
}

}  // namespace bluefog::bfrun
