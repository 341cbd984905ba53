#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bluefog_cpp/bootstrap/store/store_records.hpp"
#include "bluefog_cpp/deadline.hpp"
#include "bluefog_cpp/log.hpp"
#include "bluefog_cpp/settings.hpp"
#include "bluefog_cpp/store.hpp"

namespace bluefog {

/// The keys of one bootstrap in a store, and how its ranks exchange records there: each announces
/// its own, rank 0 gathers them and hands all of them out.
class StoreExchange {
 public:
  struct Place {
    std::shared_ptr<Store> store;
    int rank = 0;
    int size = 1;
    std::string prefix;
    std::string root;       ///< the prefix of the launch, whose groups are counted together
    bool may_grow = false;  ///< whether processes that come later may be taken in
    int launch_rank = -1;   ///< this process's number for its launcher
    /// The key at which the store's keeper says which ranks of the launch have ended; empty: none does,
    /// or ranks are numbered otherwise here.
    std::string ended_key = {};
    std::chrono::nanoseconds stall_warning{0};
    std::string_view timeout_name = Settings().timeout_name;
    Logger log{LogOptions{}};
  };
  /// The fault of a rank's record, in words for all ranks; empty: none.
  using Judge = std::function<std::string(int rank, const StoreRecord&)>;

  explicit StoreExchange(Place place) : place_(std::move(place)) {}

  [[nodiscard]] const Place& place() const noexcept { return place_; }
  /// "bootstrap barrier on rank 1, over the store of bfrun at 127.0.0.1:4711".
  [[nodiscard]] std::string name_of(BootstrapCall call) const;

  /// One collective: the records of all ranks. May be called again after an exception.
  /// @param judge called on rank 0 for the others' records; what it says is on all ranks a
  ///   UnsupportedError.
  /// @param is_over set when nobody waits for this call any more.
  [[nodiscard]] std::vector<StoreRecord> run(const StoreRecord& own, const Judge& judge,
                                             Deadline deadline, const std::atomic<bool>& is_over);

  /// Whether this rank has handed something out.
  [[nodiscard]] bool has_handed_out() const noexcept { return handed_out_ > 0; }
  /// Returns when the others have all that this rank has handed out, or `deadline` passes, or
  /// `is_over`.
  void await_receipts(Deadline deadline, const std::atomic<bool>& is_over);

  /// From now on this rank is one of the launch by this group: with its last rank that ends.
  /// The others learn its number for the launcher.
  void begin_membership();
  /// Not any more. @return whether it was.
  [[nodiscard]] bool end_membership() noexcept { return is_member_.exchange(false); }

 private:
  struct Wait;

  [[nodiscard]] std::string key(const std::string& of) const;
  /// The number of a key that counts what the other ranks have received.
  [[nodiscard]] std::string receipts_key() const { return place_.prefix + "/got"; }
  [[nodiscard]] std::string key_of_rank(int rank) const { return key(std::to_string(rank)); }
  [[nodiscard]] std::vector<StoreRecord> gather(const StoreRecord& own, const Judge& judge,
                                                Wait& wait);
  void hand_out(const std::string& verdict, const std::vector<StoreRecord>& records, Wait& wait);
  [[nodiscard]] std::vector<StoreRecord> receive(Wait& wait);
  [[nodiscard]] Store::Bytes await(const std::string& key, std::size_t most, Wait& wait);
  [[nodiscard]] std::vector<int> missing();
  /// @throws PeerFailure where a rank that has not come has ended.
  void check_the_missing(const Wait& wait);
  void warn_if_due(Wait& wait);
  void note_put(const std::string& key, std::size_t bytes);
  void give_receipt(Deadline deadline);
  void remove_old(Deadline deadline);

  Place place_;
  std::uint64_t generation_ = 0;
  std::atomic<std::int64_t> handed_out_{0};
  std::atomic<bool> is_member_{false};
  struct Put {
    std::uint64_t generation;
    std::string key;
    std::size_t bytes;
  };
  std::deque<Put> puts_;
};

/// The key of the number for the launcher that a rank of the group with this prefix has.
[[nodiscard]] std::string launch_rank_key(const std::string& prefix, int rank);

}  // namespace bluefog
