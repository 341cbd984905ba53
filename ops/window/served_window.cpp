#include "ops/window/served_window.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/window/coded_put.hpp"

namespace bluefog::ops {

void ServedWindow::store(int source, const WindowMessage& request,
                         std::span<const std::byte> payload) {
  const auto found = std::ranges::find(sources_, source);
  const auto end = std::ranges::find(request.text, '\0');
  const std::string_view code(request.text.begin(), end);
  std::vector<std::byte> decoded;
  if (!code.empty()) {
    decoded = decoded_put(code, payload, tensor_.dtype, tensor_.count);
    payload = decoded;
  }
  if (found == sources_.end() || payload.size() != tensor_.bytes()) {
    throw InvalidArgument(fmt::format("rank {} sent {} bytes to a window of {} bytes", source,
                                      payload.size(), tensor_.bytes()));
  }
  const bool adds = request.kind == WindowMessage::Kind::Accumulate;
  memory_.store(static_cast<std::size_t>(found - sources_.begin()),
                adds ? StoreMode::Add : StoreMode::Replace,
                {.data = payload.data(),
                 .weight = request.weight,
                 .mass = request.mass,
                 .stamp = request.stamp},
                take_);
}

std::span<const std::byte> ServedWindow::load(int, double& mass, std::vector<std::byte>& room) {
  mass = memory_.mass().load();
  if (memory_.publishes()) {
    room.resize(tensor_.bytes());
    memory_.copy_published(room.data(), take_);
    return room;
  }
  return {static_cast<const std::byte*>(tensor_.data), tensor_.bytes()};
}

void ServedWindow::set_stamp(int source, std::int64_t stamp) {
  const auto found = std::ranges::find(sources_, source);
  if (found != sources_.end()) {
    memory_.set_stamp(static_cast<std::size_t>(found - sources_.begin()), stamp);
  }
}

bool ServedWindow::try_lock(int source) {
  if (holder_ >= 0 || memory_.mutex().poll(source) == shm::RobustLock::Outcome::Busy) {
    return false;
  }
  holder_ = source;
  return true;
}

void ServedWindow::unlock(int source) {
  if (holder_ == source) {
    holder_ = -1;
    memory_.mutex().release();
  }
}

}  // namespace bluefog::ops
