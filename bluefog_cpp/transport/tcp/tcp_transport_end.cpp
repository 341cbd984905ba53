// The end of a transport: it says goodbye, and waits a little for what is on its way.
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <chrono>
#include <thread>

#include "bluefog_cpp/base/linger.hpp"
#include "bluefog_cpp/transport/tcp/tcp_transport.hpp"

namespace bluefog::tcp {
namespace {

bool has_unsent(const Connection& connection) {
  int bytes = 0;
  return connection.state == Connection::State::Open &&
         ::ioctl(connection.socket.get(), SIOCOUTQNSD, &bytes) == 0 && bytes > 0;
}

}  // namespace

TcpTransport::~TcpTransport() {
  try {
    Lock lock(mutex_);
    bell_ = nullptr;
    is_watched_ = false;
    table_.set_leaving();
    lobby_->stop_listening();
    say_goodbye();
    const Deadline deadline = Deadline::after(linger::kLastBytes);
    pump_until(lock, deadline, [this] {
      return !table_.any([this](const Connection& connection) {
        return connection.out.has_waiting() && !table_.peer(connection.rank).is_gone();
      });
    });
    // Bytes that came and were not read would take back what is on its way to the other rank.
    for (const Peer& to : table_.peers()) {
      for (const auto& connection : to.connections()) {
        if (connection && connection->state == Connection::State::Open) {
          ::shutdown(connection->socket.get(), SHUT_WR);
        }
      }
    }
    pump_until(lock, deadline, [this] { return !table_.any(has_unsent); });
  } catch (...) {  // out of memory: the other ranks see the connections end
  }
  lobby_->close();
}

void TcpTransport::say_goodbye() {
  for (const Peer& to : table_.peers()) {
    for (const auto& connection : to.connections()) {
      if (connection && !to.is_gone() &&
          (connection->state == Connection::State::Open ||
           (connection->state == Connection::State::Asked && connection->out.has_waiting()))) {
        connection->out.add(FrameFront::numbered(FrameKind::Goodbye, 0));
        table_.note_sent(*connection);
      }
    }
  }
}

void TcpTransport::pump_until(Lock& lock, Deadline deadline, const std::function<bool()>& done) {
  constexpr std::chrono::microseconds kPause(50);
  while (receiver_.pump() || (!done() && !deadline.expired())) {
    if (deadline.expired()) {
      return;
    }
    lock.unlock();
    std::this_thread::sleep_for(kPause);
    lock.lock();
  }
}

}  // namespace bluefog::tcp
