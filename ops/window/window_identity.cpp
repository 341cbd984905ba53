#include "ops/window/window_identity.hpp"

#include <fmt/format.h>

#include <utility>

#include "ops/window/window_record.hpp"

namespace bluefog::ops {

WindowIdentity::WindowIdentity(Context& context, BufferView tensor, const NeighborPlan& plan,
                               std::string name)
    : context_(context.shared_from_this()),
      rank_(context.rank()),
      tensor_(std::move(tensor)),
      plan_(plan),
      name_(std::move(name)),
      envelope_(Envelope::make(OpKind::Window, tensor_.dtype, tensor_.count, name_)),
      sources_(ranks_of(plan.sources)) {}

void WindowIdentity::enter(OneSided& hub) {
  hub_ = &hub;
  number_ = hub.take_window_number();
}

BufferView WindowIdentity::tensor_on(WindowStream stream) const {
  BufferView view = tensor_;
  if (stream) {
    view.stream = *stream;
  }
  return view;
}

WindowMemory::Shape WindowIdentity::shape_of(std::size_t sources, OwnValue own_value) const {
  return {
      .sources = sources, .own_value = own_value, .dtype = tensor_.dtype, .bytes = tensor_.bytes()};
}

std::string WindowIdentity::where(std::string_view call) const {
  return fmt::format("rank {}, window '{}', {}", rank_, name_, call);
}

std::string WindowIdentity::place_of(std::string_view call, const std::exception& error) const {
  return fmt::format("{}: {}", where(call), error.what());
}

}  // namespace bluefog::ops
