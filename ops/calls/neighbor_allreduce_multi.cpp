#include "ops/neighbor_allreduce_multi.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/container/small_vector.hpp>
#include <boost/container_hash/hash.hpp>
#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/engine/operation.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/calls/exchanges/neighbor_average.hpp"
#include "ops/calls/validation.hpp"

namespace bluefog::ops {
namespace {

/// A piece that is put together stays in the caches from one copy to the other.
constexpr std::size_t kPieceBytes = std::size_t{512} << 10U;
/// No piece has more exchanges. Ranks whose messages meet have as many of them in each.
constexpr std::size_t kMostExchanges = 3;
constexpr std::array kDtypes{Dtype::Float16, Dtype::BFloat16, Dtype::Float32, Dtype::Float64};
/// As many as the numbers of a call's exchanges suffice for.
constexpr std::size_t kMostPieces = (std::size_t{1} << 16U) / kMostExchanges - kDtypes.size();

/// A part of the callers' memory.
struct Stretch {
  std::byte* data;
  std::size_t bytes;
};

using Stretches = boost::container::small_vector<Stretch, 128>;

std::size_t piece_bytes_of(std::span<const BufferView> buffers) {
  std::size_t total = 0;
  for (const BufferView& buffer : buffers) {
    total += buffer.bytes();
  }
  const std::size_t least = total / kMostPieces + 1;
  return std::max(kPieceBytes, (least + 63) / 64 * 64);
}

/// The buffers' memory, dtype by dtype and piece by piece.
class PieceReader {
 public:
  PieceReader(std::span<const BufferView> buffers, std::size_t piece_bytes)
      : buffers_(buffers), piece_bytes_(piece_bytes) {}

  /// Fills `stretches` with the next piece. @return false after the last one.
  bool next(Stretches& stretches) {
    stretches.clear();
    bytes_ = 0;
    for (; dtype_ < kDtypes.size(); ++dtype_, buffer_ = 0) {
      for (; buffer_ < buffers_.size(); ++buffer_, offset_ = 0) {
        if (buffers_[buffer_].dtype == kDtypes[dtype_] && !take(stretches)) {
          return true;
        }
      }
      if (bytes_ > 0) {
        return true;
      }
    }
    return false;
  }

  [[nodiscard]] Dtype dtype() const noexcept { return kDtypes[dtype_]; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  /// Adds what is left of the buffer. @return false where the piece is full.
  bool take(Stretches& stretches) {
    const BufferView& buffer = buffers_[buffer_];
    const std::size_t taken = std::min(buffer.bytes() - offset_, piece_bytes_ - bytes_);
    if (taken > 0) {
      std::byte* const data = static_cast<std::byte*>(buffer.data) + offset_;
      if (!stretches.empty() && stretches.back().data + stretches.back().bytes == data) {
        stretches.back().bytes += taken;
      } else {
        stretches.push_back({data, taken});
      }
      offset_ += taken;
      bytes_ += taken;
    }
    return bytes_ < piece_bytes_;
  }

  std::span<const BufferView> buffers_;
  std::size_t piece_bytes_;
  std::size_t dtype_ = 0;
  std::size_t buffer_ = 0;
  std::size_t offset_ = 0;
  /// Of the piece.
  std::size_t bytes_ = 0;
};

/// One call whose exchanges are those of one average after the other.
class NeighborAllreduceMulti final : public Operation {
 public:
  /// @param block for pieces that are put together, of `piece_bytes`.
  NeighborAllreduceMulti(const Context& context, std::span<const BufferView> buffers,
                         const NeighborPlan& plan, const NeighborAllreduceOptions& options,
                         std::size_t piece_bytes, std::byte* block)
      : context_(context),
        plan_(plan),
        options_(options),
        reader_(buffers, piece_bytes),
        block_(block),
        name_(options.name),
        envelope_(Envelope::make(OpKind::NeighborAllreduce, Dtype::Float32, 0, options.name)) {
    envelope_.name = name_.text();
    mark_in_place();
    begin_piece();  // without buffers too: ranks whose buffers have elements are to hear of it
  }

  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }
  [[nodiscard]] bool envelope_changes() const noexcept override { return true; }

  bool next(ExchangeSpec& spec) override {
    while (!average_->next(spec, call_index())) {
      end_piece();
      if (!begin_piece()) {
        return false;
      }
    }
    spec.last = false;
    return true;
  }

  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) override {
    average_->receive(offset, bytes, pieces);
  }

 private:
  bool begin_piece() {
    const bool is_first = !average_;
    const bool has_more = reader_.next(stretches_);
    if (!has_more && !is_first) {
      return false;
    }
    BufferView view;
    if (has_more) {
      envelope_.dtype = view.dtype = reader_.dtype();
      envelope_.count = view.count =
          static_cast<std::int64_t>(reader_.bytes() / size_of(view.dtype));
      view.data = is_put_together() ? block_ : stretches_[0].data;
    }
    if (is_put_together()) {
      std::byte* to = block_;
      for (const Stretch& stretch : stretches_) {
        std::memcpy(to, stretch.data, stretch.bytes);
        to += stretch.bytes;
      }
    }
    average_.emplace(context_, ConstBufferView(view), view, plan_, options_, envelope_,
                     compared_ ? &*compared_ : nullptr);
    return true;
  }

  void end_piece() {
    if (auto comparison = average_->take_comparison()) {
      comparison_ = std::move(comparison);
      compared_.emplace([this](int rank) { return comparison_->links_of(rank); });
    }
    if (is_put_together()) {
      const std::byte* from = block_;
      for (const Stretch& stretch : stretches_) {
        std::memcpy(stretch.data, from, stretch.bytes);
        from += stretch.bytes;
      }
    }
  }

  [[nodiscard]] bool is_put_together() const noexcept { return stretches_.size() > 1; }

  const Context& context_;
  const NeighborPlan& plan_;
  const NeighborAllreduceOptions& options_;
  PieceReader reader_;
  std::byte* block_;
  CallName name_;
  /// Of the piece that is under way.
  Envelope envelope_;
  Stretches stretches_;
  /// Where the plans are compared: once, with the first piece.
  std::unique_ptr<PlanExchange> comparison_{};
  std::optional<StepGraph> compared_{};
  std::optional<NeighborAverage> average_{};
};

void check_apart(const Context& context, std::span<const BufferView> buffers) {
  boost::container::small_vector<std::size_t, 128> order;
  for (std::size_t k = 0; k < buffers.size(); ++k) {
    if (buffers[k].count > 0) {
      order.push_back(k);
    }
  }
  const auto begin = [&](std::size_t k) { return static_cast<const std::byte*>(buffers[k].data); };
  std::ranges::sort(order, std::less<>{}, begin);
  for (std::size_t k = 1; k < order.size(); ++k) {
    const auto [before, after] = std::minmax(order[k - 1], order[k]);
    if (begin(order[k - 1]) + buffers[order[k - 1]].bytes() > begin(order[k])) {
      throw InvalidArgument(fmt::format(
          "{}_multi: expected buffers that are apart, found that buffers {} and {} of {} overlap",
          where(context, OpKind::NeighborAllreduce), before, after, buffers.size()));
    }
  }
}

void check_arguments(const Context& context, std::span<const BufferView> buffers,
                     const NeighborPlan* plan) {
  if (context.core().engine().is_forked()) {  // its scratch memory is the rank's
    throw StateError(fmt::format(
        "{}_multi: expected the process of that rank, found a fork of it, which cannot communicate",
        where(context, OpKind::NeighborAllreduce)));
  }
  check_plan(context, OpKind::NeighborAllreduce, plan);
  for (std::size_t k = 0; k < buffers.size(); ++k) {
    const auto place = [&](const std::exception& error) {
      return fmt::format("{}; it is buffer {} of the {} of neighbor_allreduce_multi", error.what(),
                         k, buffers.size());
    };
    try {
      check_in_and_out(context, OpKind::NeighborAllreduce, buffers[k], buffers[k], Residence::Cpu);
    } catch (const UnsupportedError& error) {
      throw UnsupportedError(place(error));
    } catch (const InvalidArgument& error) {
      throw InvalidArgument(place(error));
    }
  }
  check_apart(context, buffers);
}

/// A name that differs where the ranks' lists do.
std::string name_of_list(const std::string& name, std::span<const BufferView> buffers) {
  std::size_t digest = 0;
  for (const BufferView& buffer : buffers) {
    boost::hash_combine(digest, static_cast<int>(buffer.dtype));
    boost::hash_combine(digest, buffer.count);
  }
  return fmt::format("{}{}{} buffers, list {:08x}", name, name.empty() ? "" : " ", buffers.size(),
                     digest & 0xffffffffU);
}

}  // namespace

void neighbor_allreduce_multi(Context& context, std::span<const BufferView> buffers,
                              const std::shared_ptr<const NeighborPlan>& plan,
                              const NeighborAllreduceOptions& options) {
  validate(context, [&] { check_arguments(context, buffers, plan.get()); });
  NeighborAllreduceOptions named = options;
  named.name = name_of_list(options.name, buffers);
  named.completion = Completion::AsItArrives;  // it is waited for here
  const std::size_t piece_bytes = piece_bytes_of(buffers);
  ContextCore& core = context.core();
  const auto allocate = [&](std::size_t bytes) {
    std::shared_ptr<std::byte> block;
    // Of a rank without this memory the others hear; else its next call would be taken for this one.
    validate(context, [&] { block = core.allocate_shared(bytes); });
    return block;
  };
  core.scratch().with(buffers.size() > 1 ? piece_bytes : 0, allocate, [&](std::byte* block) {
    NeighborAllreduceMulti operation(context, buffers, *plan, named, piece_bytes, block);
    core.engine().run(operation);
  });
}

}  // namespace bluefog::ops
