#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bluefog_cpp/bootstrap.hpp"
#include "bluefog_cpp/bootstrap/store/regrouping.hpp"
#include "bluefog_cpp/bootstrap/store/store_exchange.hpp"

namespace bluefog {

/// The ranks that have met in a store (`make_store_bootstrap`), or have formed a group there since.
class StoreBootstrap : public Bootstrap {
 public:
  explicit StoreBootstrap(std::shared_ptr<StoreExchange> exchange);
  StoreBootstrap(const StoreBootstrap&) = delete;
  StoreBootstrap& operator=(const StoreBootstrap&) = delete;
  ~StoreBootstrap() override;

  [[nodiscard]] int rank() const noexcept override { return place().rank; }
  [[nodiscard]] int size() const noexcept override { return place().size; }
  [[nodiscard]] std::string_view name() const noexcept override { return "store"; }
  [[nodiscard]] bool in_process() const noexcept override { return false; }

  [[nodiscard]] std::vector<Blob> allgather(std::span<const std::byte> blob,
                                            Deadline deadline) override;
  void barrier(Deadline deadline) override;
  [[nodiscard]] std::shared_ptr<Bootstrap> duplicate(Deadline deadline) override;

  [[nodiscard]] std::string_view regroup_obstacle() const noexcept override { return {}; }
  [[nodiscard]] Regrouped regroup(WhyGone why_gone, Deadline deadline, bool admits) override;
  [[nodiscard]] bool has_applicants() override;
  [[nodiscard]] std::shared_ptr<void> before_shutdown(std::function<void()> leave) override;

 protected:
  [[nodiscard]] const StoreExchange::Place& place() const { return exchange_->place(); }
  /// That of the next copy.
  [[nodiscard]] StoreExchange::Place place_of_copy();

  /// The part of a group that its meeting leaves open. @param own this rank's number in it.
  [[nodiscard]] Regrouped group_of(const std::string& what,
                                   const std::shared_ptr<Regrouping>& meeting,
                                   const std::shared_ptr<const Regrouping::Verdict>& verdict,
                                   int own, const WhyGone& why_gone);

  /// `run_beside`, with what it is about in its errors.
  void in_the_store(const std::string& what, Deadline longest,
                    std::function<void(const std::atomic<bool>&)> body) const;

 private:
  std::vector<StoreRecord> meet(BootstrapCall call, Blob blob, Deadline deadline);

  std::shared_ptr<StoreExchange> exchange_;
  std::shared_ptr<Regrouping> regrouping_;
  std::shared_ptr<void> before_exit_;
  pid_t owner_ = ::getpid();
  int duplicates_ = 0;
  bool has_lost_store_ = false;
  std::string broken_;
};

/// A collective of `exchange`, in a thread beside the caller, which holds all that it touches: it
/// may be stuck for ever. @param check, deadline as `run_beside`. @throws as that and
/// `StoreExchange::run`.
[[nodiscard]] std::vector<StoreRecord> run_in_store(const std::shared_ptr<StoreExchange>& exchange,
                                                    StoreRecord own, StoreExchange::Judge judge,
                                                    Deadline deadline,
                                                    const std::function<void()>& check);

}  // namespace bluefog
