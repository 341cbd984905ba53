#include "bluefog_cpp/engine/exchange_spec.hpp"

#include <fmt/format.h>

namespace bluefog {

std::string ExchangeCall::describe() const {
  return fmt::format("rank {}, {}, {}", rank, call_text(id.call()), spec.envelope.describe());
}

}  // namespace bluefog
