#pragma once

#include <memory>
#include <vector>

#include "bluefog_cpp/base/trace/trace.hpp"
#include "bluefog_cpp/engine/context_family.hpp"
#include "bluefog_cpp/engine/exchange/routes.hpp"
#include "bluefog_cpp/engine/flight_recorder.hpp"
#include "bluefog_cpp/engine/waiter.hpp"
#include "bluefog_cpp/log.hpp"
#include "bluefog_cpp/transport/doorbell.hpp"
#include "bluefog_cpp/transport/transport.hpp"

namespace bluefog {

/// The transports, settings and records of a new engine.
struct EngineParts {
  int rank = 0;
  int size = 1;
  std::vector<std::unique_ptr<Transport>> transports{};
  Routes routes{};
  /// The bell that peers ring; null when no transport shares memory.
  Doorbell* doorbell = nullptr;
  WaitPolicy policy{};
  Logger log{};
  /// Null when no timeline is written.
  std::shared_ptr<Timeline> timeline{};
  /// Null when no flight record is kept.
  std::shared_ptr<FlightRecorder> recorder{};
  /// This context's number in the flight record.
  int recorded_context = 0;
  /// The engines of related contexts; null where there can be none.
  std::shared_ptr<ContextFamily> family{};
  /// The loss of a rank ends all calls (`Revocation`).
  bool losses_revoke = false;
};

}  // namespace bluefog
