#include "bluefog_cpp/bootstrap/store/attempt.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/bootstrap/store/beside.hpp"
#include "bluefog_cpp/bootstrap/store/words.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {
namespace {

constexpr std::chrono::milliseconds kAnswerSlice{200};
constexpr std::chrono::milliseconds kQuestionPause{10};

std::string name_of_this_one() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}", device(), device());
}

struct Asker {
  int rank = 0;
  std::string answered{};  ///< its last question that has been answered
};

/// One rank's part.
class Attempt {
 public:
  Attempt(std::shared_ptr<Store> store, const StorePlace& place, const Settings& settings,
          std::string what, Deadline deadline)
      : store_(std::move(store)),
        prefix_(place.prefix + "/attempts"),
        rank_(place.rank),
        size_(place.size),
        timeout_name_(settings.timeout_name),
        what_(std::move(what)),
        deadline_(deadline) {}

  /// Until `is_over` is set.
  void run(const std::atomic<bool>& is_over) {
    if (rank_ == 0) {
      answer_all(is_over);
    } else {
      ask(is_over);
    }
  }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  [[nodiscard]] std::string question_of(int rank) const {
    return fmt::format("{}/at/{}", prefix_, rank);
  }
  [[nodiscard]] std::string answer_to(const std::string& question) const {
    return fmt::format("{}/for/{}", prefix_, question);
  }
  [[nodiscard]] std::string receipt_of(const std::string& question, const std::string& name) const {
    return fmt::format("{}/got/{}/{}", prefix_, name, question);
  }
  void put(const std::string& key, const std::string& text) {
    store_->set(key, bytes_of(text), deadline_);
  }
  [[nodiscard]] std::optional<std::string> look(const std::string& key, Deadline deadline) {
    const auto found = store_->get(key, deadline);
    return found ? std::optional(words_of(*found)) : std::nullopt;
  }

  void ask(const std::atomic<bool>& is_over) {
    const std::string question = name_of_this_one();
    put(question_of(rank_), question);
    while (!is_over) {
      if (const auto name = look(answer_to(question), Deadline::after(kAnswerSlice))) {
        name_ = *name;
        put(receipt_of(question, name_), "1");
        return;
      }
      check_time({0});
    }
  }

  void answer_all(const std::atomic<bool>& is_over) {
    name_ = name_of_this_one();
    std::vector<Asker> waited_for;
    for (int rank = 1; rank < size_; ++rank) {
      waited_for.push_back({.rank = rank});
    }
    while (!is_over) {
      std::vector<Asker> left;
      for (Asker& asker : waited_for) {
        if (!answer(asker)) {
          left.push_back(std::move(asker));
        }
      }
      waited_for = std::move(left);
      if (waited_for.empty()) {
        return;
      }
      std::vector<int> ranks;
      std::ranges::transform(waited_for, std::back_inserter(ranks), &Asker::rank);
      check_time(ranks);
      std::this_thread::sleep_for(kQuestionPause);
    }
  }

  /// Whether the rank has the answer.
  bool answer(Asker& asker) {
    const auto question = look(question_of(asker.rank), at_once());
    if (question && *question != asker.answered) {
      asker.answered = *question;
      put(answer_to(asker.answered), name_);
    }
    return !asker.answered.empty() && look(receipt_of(asker.answered, name_), at_once());
  }

  void check_time(const std::vector<int>& missing) const {
    if (deadline_.expired()) {
      throw TimeoutError(fmt::format("{}: expected all {} ranks within {:.3g} s ({}), {}", what_,
                                     size_, deadline_.timeout().count(), timeout_name_,
                                     words_of_missing(missing)));
    }
  }

  std::shared_ptr<Store> store_;
  std::string prefix_;
  int rank_;
  int size_;
  std::string timeout_name_;
  std::string what_;
  Deadline deadline_;
  std::string name_;
};

}  // namespace

std::string agree_on_attempt(const std::shared_ptr<Store>& store, const StorePlace& place,
                             const Settings& settings, Deadline deadline,
                             const std::function<void()>& interrupt_check) {
  const std::string what =
      fmt::format("bootstrap start on rank {}, over {}", place.rank, store->description());
  const auto attempt = std::make_shared<Attempt>(store, place, settings, what, deadline);
  try {
    run_beside([attempt](const std::atomic<bool>& is_over) { attempt->run(is_over); },
               interrupt_check, deadline, what);
  } catch (const TransportError& error) {
    throw TransportError(fmt::format("{}: {}", what, error.what()));
  }
  return attempt->name();
}

}  // namespace bluefog
