#include "bluefog_cpp/bootstrap/store/applicant_bootstrap.hpp"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <utility>

#include "bluefog_cpp/base/exit_note.hpp"
#include "bluefog_cpp/bootstrap/store/beside.hpp"
#include "bluefog_cpp/bootstrap/store/words.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog {

std::shared_ptr<Bootstrap> ApplicantBootstrap::duplicate(Deadline /*deadline*/) {
  return std::make_shared<ApplicantBootstrap>(std::make_shared<StoreExchange>(place_of_copy()),
                                              applicant_);
}

Bootstrap::Regrouped ApplicantBootstrap::regroup(WhyGone /*why_gone*/, Deadline /*deadline*/,
                                                 bool /*admits*/) {
  const std::string what =
      fmt::format("a process that joins, over {}", place().store->description());
  const auto admission = std::make_shared<Applicant::Admission>();
  in_the_store(what, Deadline::never(),
               [held = applicant_, admission](const std::atomic<bool>& is_over) {
                 *admission = held->wait(is_over);
               });
  const auto verdict = std::make_shared<Regrouping::Verdict>(admission->verdict);
  return taken_in(group_of(what, admission->meeting, verdict, admission->rank,
                           [](int) { return std::nullopt; }),
                  [held = applicant_] {
                    held->end();
                    report_joining();
                  });
}

std::string running_key(const StorePlace& place) { return place.prefix + "/running"; }

std::shared_ptr<Bootstrap> make_applicant_bootstrap(std::shared_ptr<Store> store,
                                                    const StorePlace& place,
                                                    const Settings& settings, Deadline deadline,
                                                    const std::function<void()>& interrupt_check) {
  const std::string what = fmt::format("a process that joins, over {}", store->description());
  const auto root = std::make_shared<std::optional<Store::Bytes>>();
  run_beside(
      [store, root, deadline, key = running_key(place)](const std::atomic<bool>& is_over) {
        while (!*root && !is_over && !deadline.expired()) {
          *root = store->get(key, Deadline::after(std::chrono::milliseconds(50)));
        }
      },
      interrupt_check, deadline, what);
  if (!*root) {
    throw TimeoutError(fmt::format(
        "{}: expected ranks that are running with BLUEFOG_ON_FAILURE=shrink, found none within {}",
        what, settings.timeout_name));
  }
  StoreExchange::Place own{
      .store = std::move(store),
      .prefix = {},
      .root = words_of(**root),
      .may_grow = true,
      .launch_rank = place.rank,
      .stall_warning = settings.stall_warning,
      .timeout_name = settings.timeout_name,
      .log = Logger(
          {.level = settings.log_level, .hide_time = settings.log_hide_time, .rank = place.rank})};
  const auto applicant = std::make_shared<Applicant>(own);
  own.prefix = fmt::format("{}/w{}", own.root, applicant->id());
  return std::make_shared<ApplicantBootstrap>(std::make_shared<StoreExchange>(std::move(own)),
                                              applicant);
}

}  // namespace bluefog
