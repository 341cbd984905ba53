#include "ops/neighbor_allreduce_multi.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/container/small_vector.hpp>
#include <boost/container_hash/hash.hpp>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/context/context_core.hpp"
#include "bluefog_cpp/error.hpp"
#include "ops/calls/validation.hpp"

namespace bluefog::ops {
namespace {

constexpr OpKind kKind = OpKind::NeighborAllreduce;
/// A piece that is put together stays in the caches from one copy to the other.
constexpr std::size_t kPieceBytes = std::size_t{512} << 10U;
constexpr std::array kDtypes{Dtype::Float16, Dtype::BFloat16, Dtype::Float32, Dtype::Float64};

/// A part of the callers' memory.
struct Stretch {
  std::byte* data;
  std::size_t bytes;
};

/// Averages of the stretches that are added, piece by piece.
class Pieces {
 public:
  Pieces(Context& context, const std::shared_ptr<const NeighborPlan>& plan,
         const NeighborAllreduceOptions& options)
      : context_(context), plan_(plan), options_(options) {}

  void add(const BufferView& buffer) {
    auto* data = static_cast<std::byte*>(buffer.data);
    for (std::size_t left = buffer.bytes(); left > 0;) {
      const std::size_t taken = std::min(left, kPieceBytes - bytes_);
      append({data, taken});
      data += taken;
      left -= taken;
      if (bytes_ == kPieceBytes) {
        average(buffer.dtype);
      }
    }
  }

  /// Averages what was added since the last whole piece.
  void finish(Dtype dtype) {
    if (bytes_ > 0) {
      average(dtype);
    }
  }

  /// Takes part in the call of ranks whose buffers have no elements.
  void average_nothing() { neighbor_allreduce(context_, BufferView{}, plan_, options_); }

  [[nodiscard]] bool has_averaged() const noexcept { return has_averaged_; }

 private:
  void append(Stretch stretch) {
    if (!stretches_.empty() && stretches_.back().data + stretches_.back().bytes == stretch.data) {
      stretches_.back().bytes += stretch.bytes;
    } else {
      stretches_.push_back(stretch);
    }
    bytes_ += stretch.bytes;
  }

  void average(Dtype dtype) {
    if (stretches_.size() == 1) {
      average(stretches_[0].data, dtype);
    } else {
      ContextCore& core = context_.core();
      core.scratch().with(
          bytes_, [&](std::size_t bytes) { return core.allocate_shared(bytes); },
          [&](std::byte* block) {
            std::byte* to = block;
            for (const Stretch& stretch : stretches_) {
              std::memcpy(to, stretch.data, stretch.bytes);
              to += stretch.bytes;
            }
            average(block, dtype);
            const std::byte* from = block;
            for (const Stretch& stretch : stretches_) {
              std::memcpy(stretch.data, from, stretch.bytes);
              from += stretch.bytes;
            }
          });
    }
    has_averaged_ = true;
    stretches_.clear();
    bytes_ = 0;
  }

  void average(std::byte* data, Dtype dtype) {
    const auto count = static_cast<std::int64_t>(bytes_ / size_of(dtype));
    neighbor_allreduce(context_, {.data = data, .count = count, .dtype = dtype}, plan_, options_);
  }

  Context& context_;
  const std::shared_ptr<const NeighborPlan>& plan_;
  const NeighborAllreduceOptions& options_;
  boost::container::small_vector<Stretch, 128> stretches_;
  std::size_t bytes_ = 0;
  bool has_averaged_ = false;
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
          where(context, kKind), before, after, buffers.size()));
    }
  }
}

void check_arguments(const Context& context, std::span<const BufferView> buffers,
                     const NeighborPlan* plan) {
  if (context.core().engine().is_forked()) {  // its scratch memory is the rank's
    throw StateError(fmt::format(
        "{}_multi: expected the process of that rank, found a fork of it, which cannot communicate",
        where(context, kKind)));
  }
  check_plan(context, kKind, plan);
  for (std::size_t k = 0; k < buffers.size(); ++k) {
    const auto place = [&](const std::exception& error) {
      return fmt::format("{}; it is buffer {} of the {} of neighbor_allreduce_multi", error.what(),
                         k, buffers.size());
    };
    try {
      check_in_and_out(context, kKind, buffers[k], buffers[k], Residence::Cpu);
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
  Pieces pieces(context, plan, named);
  for (const Dtype dtype : kDtypes) {
    for (const BufferView& buffer : buffers) {
      if (buffer.dtype == dtype) {
        pieces.add(buffer);
      }
    }
    pieces.finish(dtype);
  }
  if (!pieces.has_averaged()) {
    pieces.average_nothing();
  }
}

}  // namespace bluefog::ops
