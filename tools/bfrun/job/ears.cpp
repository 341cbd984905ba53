#include "tools/bfrun/job/ears.hpp"

#include <sys/epoll.h>

#include <string_view>
#include <utility>

#include "tools/bfrun/job/rank_report.hpp"

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
  const auto before_sleep = [&] {
    const auto now = JobMonitor::Clock::now();
    for (const auto& text : monitor.due_lines(now)) {
      say(text);
    }
    RestartsDue restarts = monitor.take_restarts(now);
    for (const auto& text : restarts.lines) {
      say(text);
    }
    const bool kill = monitor.wants_kill(now);
    return ChildCare{.sleep = monitor.time_left(now),
                     .kill = kill,
                     .spare_others = monitor.awaits_earlier_end(),
                     .restarts = std::move(restarts)};
  };
  const auto on_rank_failure = [&](int rank) {
    const auto decision = monitor.decide_restart(rank);
    for (const auto& text : decision.lines) {
      say(text);
    }
    return decision.is_granted;
  };
  const RankLine::Listener ranks{take, [&](int rank) { monitor.take_watcher_end(rank); }};
  const HostLine::Listener hosts{[&](int rank, const std::string& why) {
                                   for (const auto& text : monitor.take_loss(rank, why)) {
                                     say(text);
                                   }
                                 },
                                 [&](int rank) { monitor.take_far_end(rank); }};
  const auto status = run({.on_stderr = on_stderr,
                           .on_signal = [&](int number) { monitor.take_signal(number); },
                           .before_sleep = before_sleep,
                           .descriptor = ears.descriptor(),
                           .on_readable = [&] { ears.serve(ranks, hosts); },
                           .on_rank_failure = on_rank_failure});
  write_to_stderr(filter.finish());
  for (const auto& text : monitor.closing_lines(status)) {
    say(text);
  }
  return monitor.exit_code(status);
}

}  // namespace bluefog::bfrun
