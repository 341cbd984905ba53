#include "bluefog_cpp/transport/shm/arena_handout.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "bluefog_cpp/base/system_limits.hpp"
#include "bluefog_cpp/error.hpp"

namespace bluefog::shm {
namespace {

using Clock = std::chrono::steady_clock;

/// The longest time that a greeting takes; a rank that was slower connects again.
constexpr std::chrono::seconds kGreetingTime{5};
constexpr int kLookMilliseconds = 50;

void wait_readable(std::vector<pollfd>& states) {
  if (::poll(states.data(), states.size(), kLookMilliseconds) < 0 && errno != EINTR) {
    throw TransportError(fmt::format("shared memory set-up: poll failed: {}", reason_of(errno)));
  }
}

/// Waits for the giver's answer. @return nothing where it has closed the connection.
UniqueFd take_answer(int socket, const Token& token, Deadline deadline) {
  GreetingReader reader;
  std::vector<pollfd> states{{.fd = socket, .events = POLLIN, .revents = 0}};
  while (true) {
    wait_readable(states);
    switch (reader.read(socket)) {
      case GreetingReader::State::Partial:
        break;
      case GreetingReader::State::Closed:
        return {};
      case GreetingReader::State::Whole:
        if (reader.greeting().token != token) {
          throw TransportError("shared memory set-up: an answer came that is not from this job");
        }
        return reader.take_fd();
    }
    if (deadline.expired()) {
      throw TimeoutError(
          "shared memory set-up: no answer of the rank that shares memory before "
          "the deadline");
    }
  }
}

}  // namespace

/// A connection whose greeting is on its way.
struct ArenaGiver::Guest {
  UniqueFd socket{};
  GreetingReader reader{};
  Clock::time_point until{};
};

ArenaGiver::ArenaGiver(const std::vector<int>& ranks)
    : rank_(ranks.front()),
      missing_(ranks.begin() + 1, ranks.end()),
      token_(random_token()),
      listener_(FdListener::open(static_cast<int>(ranks.size()))) {}

ArenaGiver::~ArenaGiver() = default;

void ArenaGiver::give(const HostArena& arena, Deadline deadline) {
  while (!missing_.empty()) {
    std::vector<pollfd> states{{.fd = listener_.fd(), .events = POLLIN, .revents = 0}};
    for (const Guest& guest : guests_) {
      states.push_back({.fd = guest.socket.get(), .events = POLLIN, .revents = 0});
    }
    wait_readable(states);
    admit();
    std::erase_if(guests_, [&](Guest& guest) { return serve(guest, arena); });
    if (deadline.expired() && !missing_.empty()) {
      throw TimeoutError(
          fmt::format("shared memory set-up: ranks {} have not come to rank {} before the deadline",
                      fmt::join(missing_, ", "), rank_));
    }
  }
}

void ArenaGiver::admit() {
  while (UniqueFd socket = listener_.accept()) {
    guests_.push_back({.socket = std::move(socket), .until = Clock::now() + kGreetingTime});
  }
}

bool ArenaGiver::serve(Guest& guest, const HostArena& arena) {
  switch (guest.reader.read(guest.socket.get())) {
    case GreetingReader::State::Partial:
      return Clock::now() > guest.until;
    case GreetingReader::State::Closed:
      return true;
    case GreetingReader::State::Whole:
      break;
  }
  const Greeting& greeting = guest.reader.greeting();
  const auto found = std::ranges::find(missing_, greeting.rank);
  if (greeting.token == token_ && found != missing_.end() &&
      send_greeting(guest.socket.get(), {.rank = rank_, .token = token_}, arena.fd())) {
    missing_.erase(found);
  }
  return true;
}

std::shared_ptr<HostArena> ArenaTaker::take(const std::string& name, const Token& token,
                                            Deadline deadline) {
  while (true) {
    connect_to(socket_.get(), name, deadline);
    if (send_greeting(socket_.get(), {.rank = rank_, .token = token})) {
      if (UniqueFd fd = take_answer(socket_.get(), token, deadline)) {
        return HostArena::adopt(std::move(fd));
      }
    }
    if (deadline.expired()) {
      throw TimeoutError("shared memory set-up: every greeting was too slow before the deadline");
    }
    socket_ = make_socket();  // the giver listens on
  }
}

}  // namespace bluefog::shm
