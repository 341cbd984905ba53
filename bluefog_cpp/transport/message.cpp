#include "bluefog_cpp/transport/message.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace bluefog {
namespace {

// The name with control characters replaced, so that messages stay on one line.
std::string printable(std::string_view name) {
  std::string text(name);
  std::ranges::replace_if(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }, '?');
  return text;
}

}  // namespace

std::string_view name_of(OpKind kind) noexcept {
  switch (static_cast<OpKind>(static_cast<std::uint8_t>(kind) & 0x1fU)) {
    case OpKind::NeighborAllreduce:
      return "neighbor_allreduce";
    case OpKind::Allreduce:
      return "allreduce";
    case OpKind::Broadcast:
      return "broadcast";
    case OpKind::Allgather:
      return "allgather";
    case OpKind::Barrier:
      return "barrier";
    case OpKind::TopologyCheck:
      return "neighbor call that compares topologies";
    case OpKind::NeighborAllgather:
      return "neighbor_allgather";
    case OpKind::HierarchicalNeighborAllreduce:
      return "hierarchical_neighbor_allreduce";
    case OpKind::PairGossip:
      return "pair_gossip";
    case OpKind::Window:
      return "win_create";
    case OpKind::Duplicate:
      return "duplicate";
    case OpKind::UseDevice:
      return "use_device";
    case OpKind::Agreement:
      return "agreement";
    case OpKind::ReduceScatter:
      return "reduce_scatter";
    case OpKind::Reduce:
      return "reduce";
    case OpKind::Gather:
      return "gather";
    case OpKind::Scatter:
      return "scatter";
    case OpKind::Alltoall:
      return "alltoall";
    case OpKind::Message:
      return "message";
  }
  return "unknown operation";
}

namespace {

/// "", " on CUDA", " on CUDA, in a capture".
std::string_view place_of(OpKind kind) noexcept {
  if (!is_on_device(kind)) {
    return "";
  }
  return is_captured(kind) ? " on CUDA, in a capture" : " on CUDA";
}

}  // namespace

std::string text_of(OpKind kind) { return fmt::format("{}{}", name_of(kind), place_of(kind)); }

std::string call_text(std::uint64_t call) {
  if (is_message_call(call)) {
    return fmt::format("{} {}", (call & kReceipt) != 0 ? "receipt" : "message",
                       call & (kReceipt - 1));
  }
  return is_pair_call(call) ? fmt::format("pair call {}", call - kFirstPairCall)
                            : fmt::format("call {}", call);
}

Envelope Envelope::make(OpKind kind, Dtype dtype, std::int64_t count, std::string_view name) {
  Envelope envelope;
  envelope.kind = kind;
  envelope.dtype = dtype;
  envelope.count = count;
  if (!name.empty()) {
    std::uint32_t hash = 2166136261U;  // FNV-1a
    for (const char c : name) {
      hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
    }
    envelope.name_hash = hash == 0 ? 1 : hash;
    envelope.name = name.substr(0, kMaxNameBytes);
  }
  return envelope;
}

std::string Envelope::describe() const {
  if (kind == OpKind::Agreement) {
    return printable(name);
  }
  std::string text{name_of(kind)};
  if (has_buffer(kind)) {
    text += count < 0 ? fmt::format("({}[any]", name_of(dtype))
                      : fmt::format("({}[{}]", name_of(dtype), count);
    text += place_of(kind);
    if (name_hash != 0) {
      text += fmt::format(", name '{}'", printable(name));
    }
    text += ')';
  }
  return text;
}

}  // namespace bluefog
