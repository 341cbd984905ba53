#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "bluefog_cpp/bootstrap/store/applicant.hpp"
#include "bluefog_cpp/bootstrap/store/store_bootstrap.hpp"
#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/store_bootstrap.hpp"

namespace bluefog {

/// This process, which is alone until the ranks of a running launch take it in.
class ApplicantBootstrap final : public StoreBootstrap {
 public:
  ApplicantBootstrap(std::shared_ptr<StoreExchange> exchange, std::shared_ptr<Applicant> applicant)
      : StoreBootstrap(std::move(exchange)), applicant_(std::move(applicant)) {}

  [[nodiscard]] bool is_applicant() const noexcept override { return true; }
  [[nodiscard]] bool has_applicants() override { return false; }
  [[nodiscard]] std::shared_ptr<Bootstrap> duplicate(Deadline deadline) override;
  [[nodiscard]] Regrouped regroup(WhyGone why_gone, Deadline deadline, bool admits) override;

 private:
  std::shared_ptr<Applicant> applicant_;
};

/// The key of the root of the ranks that are running at that place, if they take others in.
[[nodiscard]] std::string running_key(const StorePlace& place);

/// The bootstrap of this process, which asks the ranks that run at that place to take it in.
/// @throws TimeoutError where there are none when `deadline` passes; TransportError.
[[nodiscard]] std::shared_ptr<Bootstrap> make_applicant_bootstrap(
    std::shared_ptr<Store> store, const StorePlace& place, const Settings& settings,
    Deadline deadline, const std::function<void()>& interrupt_check);

}  // namespace bluefog
