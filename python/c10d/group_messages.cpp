// The messages of a group between two of its ranks.
#include <fmt/format.h>

#include "bluefog_cpp/error.hpp"
#include "ops/message.hpp"
#include "python/c10d/group_backend.hpp"

namespace bluefog::c10d_backend {

// Calls of two ranks are in no order with others: their refusals count nowhere.
WorkHandle GroupBackend::send(Tensors& tensors, int target, int tag) {
  return calls_.started(
      {.type = OpType::SEND}, "send", tensors, [&](const CallPlace& place, Calls& calls) {
        const at::Tensor& tensor = only(place, "tensors", tensors);
        calls.push_back(ops::send_nonblocking(
            *context_, bytes_of(place, tensor, Order::ByRows, Keeps::Memory), target, tag));
      });
}

WorkHandle GroupBackend::recv(Tensors& tensors, int source, int tag) {
  return calls_.started(
      {.type = OpType::RECV}, "recv", tensors,
      [&](const CallPlace& place, Calls& calls) {
        const at::Tensor& tensor = only(place, "tensors", tensors);
        calls.push_back(ops::receive_nonblocking(
            *context_, bytes_of(place, tensor, Order::ByRows, Keeps::Memory), source, tag));
      },
      source);
}

WorkHandle GroupBackend::recvAnysource(Tensors& /*tensors*/, int /*tag*/) {
  return calls_.started(
      {.type = OpType::RECVANYSOURCE}, "recv", {}, [&](const CallPlace& place, Calls& /*calls*/) {
        throw UnsupportedError(fmt::format(
            "{}: expected the rank that sends (src=...), found none: this backend matches messages "
            "by source, tag and number",
            where(place)));
      });
}

}  // namespace bluefog::c10d_backend
