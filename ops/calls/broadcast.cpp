#include "ops/broadcast.hpp"

#include <fmt/format.h>

#include <bit>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bluefog_cpp/base/copy.hpp"
#include "ops/calls/group.hpp"
#include "ops/calls/start_call.hpp"
#include "ops/calls/validation.hpp"

namespace bluefog::ops {
namespace {

/// One rank's part of the tree: the root and one rank of each other host form a binomial tree,
/// and each of them passes the data on to the ranks of its host.
struct TreePart {
  std::optional<int> parent{};
  std::vector<WeightedRank> children{};
  /// Exchange in which this rank's data goes to its children; it comes in the one before.
  unsigned depth = 0;
};

/// Hosts in the order of the tree: the root's first, then rising.
std::vector<int> hosts_from_root(const MachineLayout& hosts, int root) {
  std::vector<int> order{hosts.machine_of(root)};
  for (int host = 0; host < hosts.machine_count(); ++host) {
    if (host != order.front()) {
      order.push_back(host);
    }
  }
  return order;
}

TreePart part_of(const MachineLayout& hosts, int rank, int root) {
  const std::vector<int> order = hosts_from_root(hosts, root);
  const auto leader = [&](unsigned node) {
    return node == 0 ? root : hosts.ranks_of(order[node]).front();
  };
  unsigned node = 0;
  while (order[node] != hosts.machine_of(rank)) {
    ++node;
  }
  TreePart part;
  if (rank != leader(node)) {
    part.parent = leader(node);
    part.depth = static_cast<unsigned>(std::popcount(node)) + 1;
    return part;
  }
  // A node's parent lacks its highest bit; its children have one more, above that.
  part.depth = static_cast<unsigned>(std::popcount(node));
  if (node != 0) {
    part.parent = leader(node ^ std::bit_floor(node));
  }
  for (unsigned bit = node == 0 ? 1 : std::bit_floor(node) * 2; (node | bit) < order.size();
       bit *= 2) {
    part.children.push_back({.rank = leader(node | bit)});
  }
  for (const int local : hosts.ranks_of(hosts.machine_of(rank))) {
    if (local != rank) {
      part.children.push_back({.rank = local});
    }
  }
  return part;
}

class Broadcast final : public Operation {
 public:
  Broadcast(BufferView buffer, TreePart part, int root, const OpOptions& options)
      : buffer_(std::move(buffer)),
        part_(std::move(part)),
        name_(fingerprint_name(options.name, fmt::format("root {}", root))),
        envelope_(Envelope::make(OpKind::Broadcast, buffer_.dtype, buffer_.count, name_)) {
    if (part_.parent && options.buffer == BufferUse::Values) {
      mark_in_place();
    }
  }

  [[nodiscard]] const Envelope& envelope() const noexcept override { return envelope_; }

  // Exchange number d goes from ranks of depth d to those of depth d + 1; the others rest.
  bool next(ExchangeSpec& spec) override {
    spec.envelope = envelope_;
    spec.pace = Pace::Each;
    spec.device = buffer_.device.kind;
    if (exchange_ == part_.depth) {
      outgoing_ = {.data = static_cast<const std::byte*>(buffer_.data),
                   .bytes = buffer_.bytes(),
                   .readers = part_.children};
      spec.outgoing = {&outgoing_, 1};
    } else if (exchange_ + 1 == part_.depth) {
      incoming_ = {.source = {.rank = *part_.parent},
                   .bytes = buffer_.bytes(),
                   .place = static_cast<std::byte*>(buffer_.data)};
      spec.incoming = {&incoming_, 1};
      spec.last = part_.children.empty();
    }
    if (exchange_ < part_.depth && spec.incoming.empty()) {
      spec.last = false;
    }
    return exchange_++ <= part_.depth;
  }

  void receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) override {
    copy_bytes(static_cast<std::byte*>(buffer_.data) + offset, pieces[0].data, bytes);
  }

 private:
  BufferView buffer_;
  TreePart part_;
  std::string name_;
  Envelope envelope_;
  unsigned exchange_ = 0;
  Outgoing outgoing_{};
  Incoming incoming_{};
};

void check_arguments(const Context& context, const BufferView& buffer, int root) {
  check_buffer(context, OpKind::Broadcast, buffer, Residence::Anywhere);
  if (root < 0 || root >= context.size()) {
    throw InvalidArgument(fmt::format("{}: expected a root in 0 to {}, found {}",
                                      where(context, OpKind::Broadcast), context.size() - 1, root));
  }
}

Placement place(Context& context, BufferView& buffer, int root) {
  const bool is_root = context.rank() == root;
  return Placement::of(context, OpKind::Broadcast, buffer, {.reads = is_root, .writes = !is_root});
}

}  // namespace

Work broadcast_nonblocking(Context& context, BufferView buffer, int root,
                           const OpOptions& options) {
  validate(context, [&] { check_arguments(context, buffer, root); });
  const Placement placement = place(context, buffer, root);
  return submit_call<Broadcast>(context, placement, std::move(buffer),
                                part_of(context.hosts(), context.rank(), root), root, options);
}

void broadcast(Context& context, BufferView buffer, int root, const OpOptions& options) {
  validate(context, [&] { check_arguments(context, buffer, root); });
  const Placement placement = place(context, buffer, root);
  run_call<Broadcast>(context, placement, std::move(buffer),
                      part_of(context.hosts(), context.rank(), root), root, options);
}

}  // namespace bluefog::ops
