#include "bluefog_cpp/bootstrap/store/applicants.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "bluefog_cpp/bootstrap/store/words.hpp"

namespace bluefog {
namespace {

using Clock = Deadline::Clock;

/// An applicant that waits looks far more often.
constexpr std::chrono::seconds kLongestAnswer(1);
constexpr std::chrono::milliseconds kAnswerLook(2);
/// It beats every 200 ms.
constexpr std::chrono::seconds kLongestSilence(3);

}  // namespace

std::string ApplicationKeys::of(std::int64_t id, const char* what) const {
  return fmt::format("{}/a{}/{}", root_, id, what);
}

std::vector<std::int64_t> Applicants::waiting() {
  std::vector<std::int64_t> ids;
  const std::int64_t count = store_->add(keys_.count(), 0, Deadline::never());
  for (std::int64_t id = first_; id <= count; ++id) {
    if (store_->get(keys_.over(id), at_once())) {
      first_ += id == first_ ? 1 : 0;
    } else if (store_->get(keys_.ready(id), at_once())) {
      ids.push_back(id);
    }
  }
  return ids;
}

bool Applicants::are_there() { return !waiting().empty(); }

std::vector<std::int64_t> Applicants::ask(const std::string& question, const std::string& version) {
  std::vector<std::int64_t> asked;
  for (const std::int64_t id : waiting()) {
    const auto theirs = store_->get(keys_.ready(id), at_once());
    if (theirs && words_of(*theirs) != version) {
      refuse(id, fmt::format("the ranks have version {} of bluefog_cpp, it has {}", version,
                             words_of(*theirs)));
    } else {
      store_->set(keys_.ping(id), bytes_of(question), Deadline::never());
      asked.push_back(id);
    }
  }
  std::vector<std::int64_t> answering;
  const Deadline end = Deadline::after(kLongestAnswer);
  while (answering.size() < asked.size() && !end.expired()) {
    std::this_thread::sleep_for(kAnswerLook);
    answering.clear();
    std::ranges::copy_if(asked, std::back_inserter(answering), [&](std::int64_t id) {
      const auto answer = store_->get(keys_.pong(id), at_once());
      return answer && words_of(*answer) == question;
    });
  }
  for (const std::int64_t id : asked) {
    if (!std::ranges::binary_search(answering, id)) {
      refuse(id, "it gave the ranks no answer");
    }
  }
  return answering;
}

void Applicants::tell(std::int64_t id, const std::string& place) {
  store_->set(keys_.place(id), bytes_of(place), Deadline::never());
}

void Applicants::turn_away(std::int64_t id, const std::string& why) {
  store_->set(keys_.over(id), bytes_of(why), Deadline::never());
}

void Applicants::refuse(std::int64_t id, const std::string& why) {
  log_.warning(fmt::format("a process that waits to join is turned away: {}", why));
  turn_away(id, why);
}

std::optional<std::string> Applicants::why_gone(const std::vector<std::int64_t>& ids) {
  const auto now = Clock::now();
  for (const std::int64_t id : ids) {
    Pulse& pulse = pulses_[id];
    const std::int64_t beats = store_->add(keys_.beat(id), 0, Deadline::never());
    if (beats != pulse.beats) {
      pulse = {.beats = beats, .since = now};
    } else if (now - pulse.since > kLongestSilence) {
      return "a process that was to join gives no sign of life";
    }
  }
  return std::nullopt;
}

}  // namespace bluefog
