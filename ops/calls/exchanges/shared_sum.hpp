#pragma once

#include <boost/container/small_vector.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "bluefog_cpp/buffer_view.hpp"
#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/engine/exchange.hpp"
#include "ops/calls/exchanges/in_place.hpp"
#include "ops/calls/group.hpp"
#include "ops/sums/arithmetic.hpp"

namespace bluefog::shm {
class HostMemory;
}

namespace bluefog::ops {

/// A sum over ranks of one host by rising rank, or another fold, in place, of buffers in memory that
/// these ranks share (`Context::allocate_shared`): each rank forms one shard of every rank's result,
/// where it lies. No payload is copied on its way.
///
/// Three steps. Each rank tells the others where its buffer is; where one has none in shared memory
/// the call is declined, and goes as messages. Then each rank sums. Then each hears that all have.
/// Cost per rank, n ranks and N bytes: reads N, writes N, and 2(n − 1) short messages each way.
class SharedSum {
 public:
  /// Whether ranks ask each other: the same on all ranks of the group.
  [[nodiscard]] static bool is_worth_asking(const Context& context, const Group& group,
                                            const BufferView& output);

  /// @param group stays where it is, as `input` and `output` do.
  SharedSum(const Context& context, const Group& group, const ConstBufferView& input,
            const BufferView& output, Fold rule);
  SharedSum(const SharedSum&) = delete;
  SharedSum& operator=(const SharedSum&) = delete;
  ~SharedSum();

  [[nodiscard]] InPlaceStep next(ExchangeSpec& spec);
  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces);

 private:
  /// The message by which a rank shows the others its buffer.
  struct Offer {
    /// The place of its buffer in its region, or `kNowhere`.
    std::uint64_t place = kNowhere;
  };

  void describe(ExchangeSpec& spec, const void* message, std::size_t bytes);
  [[nodiscard]] bool all_are_shared() const noexcept;
  void sum_shard();
  void sum_block(std::size_t offset, std::size_t bytes);

  std::shared_ptr<shm::HostMemory> memory_;
  const Group& group_;
  BufferView output_;
  Fold rule_;
  ArithmeticHandle sums_;
  InPlaceStage stage_ = InPlaceStage::Begin;
  Outgoing outgoing_{};
  boost::container::small_vector<Incoming, kInlineNeighbors> incoming_;
  /// The offers by place in the group; the next two are ordered alike.
  boost::container::small_vector<Offer, 1 + kInlineNeighbors> offers_;
  boost::container::small_vector<std::byte*, 1 + kInlineNeighbors> buffers_;
  boost::container::small_vector<const std::byte*, 1 + kInlineNeighbors> operands_;
};

}  // namespace bluefog::ops
