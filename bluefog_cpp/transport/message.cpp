#include "bluefog_cpp/transport/message.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace bluefog {

std::string_view name_of(OpKind kind) noexcept {
  switch (kind) {
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
      return "topology_check";
  }
  return "unknown operation";
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
    std::copy_n(name.begin(), std::min(name.size(), envelope.name.size() - 1),
                envelope.name.begin());
  }
  return envelope;
}

std::string Envelope::describe() const {
  std::string text{name_of(kind)};
  if (kind != OpKind::Barrier) {
    text += count < 0 ? fmt::format("({}[any]", name_of(dtype))
                      : fmt::format("({}[{}]", name_of(dtype), count);
    if (name_hash != 0) {
      text += fmt::format(", name '{}'", name.data());
    }
    text += ')';
  }
  return text;
}

}  // namespace bluefog
