#pragma once

#include <utility>

#include "bluefog_cpp/engine/peers.hpp"
#include "bluefog_cpp/engine/records/appointment.hpp"
#include "bluefog_cpp/engine/records/given_up.hpp"
#include "bluefog_cpp/engine/records/revocation.hpp"
#include "bluefog_cpp/engine/records/statements.hpp"

namespace bluefog {

/// What ranks tell each other of their steps, beside calls.
struct StepNews {
  /// @param peers, revocation outlive this object.
  StepNews(Peers& peers, const Revocation& revocation)
      : appointment(peers), statements(peers), given_up(peers, revocation) {}

  /// Notes what a peer reports. Under the engine's mutex.
  /// @return whether it is about steps.
  bool hear(int source, ControlMessage& report) {
    switch (report.kind) {
      case ControlMessage::Kind::Appointment:
        appointment.hear(report);
        return true;
      case ControlMessage::Kind::Statement:
        statements.hear(source, std::move(report));
        return true;
      case ControlMessage::Kind::GivenUp:
        given_up.hear(source, std::move(report.text));
        return true;
      default:
        return false;
    }
  }

  Appointment appointment;
  Statements statements;
  GivenUp given_up;
};

}  // namespace bluefog
