#include "bluefog_cpp/transport/tcp/caller.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio.hpp>
#include <chrono>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/system_limits.hpp"
#include "bluefog_cpp/transport/tcp/greeting.hpp"
#include "bluefog_cpp/transport/tcp/listening.hpp"

namespace bluefog::tcp {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

/// One address gets no more time at once: a firewall may answer nothing, and another address may.
constexpr std::chrono::seconds kAddressLimit{3};
/// Between two rounds through the addresses of a rank.
constexpr std::chrono::milliseconds kPause{200};
/// Whoever waits for a connection hears first that its own time is over: the rank may just be late.
constexpr std::chrono::milliseconds kBehindWaiters{1000};
/// How long the call of another rank is waited for that has crossed this one.
constexpr std::chrono::milliseconds kCrossedPause{1000};

constexpr const char* kNoAnswer = "no answer in time";

bool is_silence(const error_code& error) {
  return error == asio::error::host_unreachable || error == asio::error::timed_out;
}

// The system's limit and the one here are over at the same time.
std::string in_words(const error_code& error) {
  return error == asio::error::timed_out ? kNoAnswer : reason_of(error.value());
}

// A host that goes once it has the connection shows by this: the greeting is never acknowledged.
void set_silence(tcp::socket& socket, std::chrono::milliseconds silence) {
  const auto milliseconds = static_cast<unsigned>(silence.count());
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds,
               sizeof milliseconds);
}

std::string in_words(const Answer& full) {
  return fmt::format(
      "no descriptor is left there for a connection: {}",
      full.descriptors == 0
          ? std::string("its machine's processes have too many (fs.file-max)")
          : fmt::format("its process may have {} (RLIMIT_NOFILE, ulimit -n)", full.descriptors));
}

}  // namespace

shm::UniqueFd take_socket(tcp::socket& socket) {
  error_code error;
  (void)socket.set_option(tcp::no_delay(true), error);
  keep_from_children(socket.native_handle());
  shm::UniqueFd fd(socket.release(error));
  const int flags = ::fcntl(fd.get(), F_GETFL);
  ::fcntl(fd.get(), F_SETFL, flags | O_NONBLOCK);
  return fd;
}

struct Caller::Call {
  explicit Call(asio::io_context& io) : socket(io), timer(io) {}
  tcp::socket socket;
  asio::steady_timer timer;
  int rank = 0;
  std::size_t channel = 0;
  Deadline until;
  /// Until then a host may answer nothing.
  Deadline silent_until;
  std::size_t next = 0;
  Greeting greeting{};
  Answer answer{};
  /// Whether the timer ended the try under way.
  bool is_late = false;
  /// Whether an endpoint of this round has answered nothing.
  bool was_silent = false;
  /// Whether a rank has dropped this one before: its greeting may have come too late.
  bool was_dropped = false;
  /// What went wrong in this round, address by address.
  std::string failures;
};

void Caller::call(int rank, std::size_t channel) {
  auto call = std::make_shared<Call>(io_);
  call->rank = rank;
  call->channel = channel;
  begin(call);
}

void Caller::begin(const Shared& call) {
  const bool ends = options_.patience.count() != 0;
  call->until = ends ? Deadline::after(options_.patience + kBehindWaiters) : Deadline::never();
  call->silent_until = Deadline::after(options_.silence);
  begin_round(call);
}

void Caller::begin_round(const Shared& call) {
  call->next = 0;
  call->was_silent = false;
  call->failures.clear();
  try_next(call);
}

void Caller::try_next(const Shared& call) {
  const auto& endpoints = options_.endpoints[static_cast<std::size_t>(call->rank)];
  error_code error;
  (void)call->socket.close(error);
  if (call->next >= endpoints.size() || call->until.expired()) {
    end_round(call);
    return;
  }
  const Endpoint endpoint = endpoints[call->next++];
  (void)call->socket.open(endpoint.protocol(), error);
  if (error) {
    fail(call, endpoint, reason_of(error.value()));
    return;
  }
  set_silence(call->socket, options_.silence);
  call->is_late = false;
  const Deadline soon = Deadline::after(kAddressLimit);
  limit(call, call->until.is_set() && call->until.when() < soon.when() ? call->until : soon);
  call->socket.async_connect(endpoint, [this, call, endpoint](const error_code& failed) {
    if (failed) {
      call->was_silent = call->was_silent || call->is_late || is_silence(failed);
      fail(call, endpoint, in_words(failed));
    } else {
      greet(call, endpoint);
    }
  });
}

void Caller::limit(const Shared& call, Deadline until) {
  call->timer.cancel();
  if (!until.is_set()) {
    return;
  }
  call->timer.expires_at(until.when());
  call->timer.async_wait([call](const error_code& cancelled) {
    // A limit that was set anew meanwhile is not over.
    if (!cancelled && call->timer.expiry() <= Deadline::Clock::now()) {
      call->is_late = true;
      error_code ignored;
      (void)call->socket.close(ignored);
    }
  });
}

void Caller::fail(const Shared& call, const Endpoint& endpoint, const std::string& why) {
  call->timer.cancel();
  call->failures += fmt::format("{}{}: {}", call->failures.empty() ? "" : "; ", to_text(endpoint),
                                call->is_late ? kNoAnswer : why);
  try_next(call);
}

void Caller::end_round(const Shared& call) {
  if (call->was_silent && !call->silent_until.expired() && !call->until.expired()) {
    call->timer.expires_after(kPause);
    call->timer.async_wait([this, call](const error_code&) { begin_round(call); });
    return;
  }
  const bool has_endpoints = !options_.endpoints[static_cast<std::size_t>(call->rank)].empty();
  guest_.on_failed(call->rank, call->channel,
                   has_endpoints
                       ? fmt::format("it cannot be reached: {}", call->failures.substr(0, 1000))
                       : std::string("it has no address that this host reaches"));
}

void Caller::greet(const Shared& call, const Endpoint& endpoint) {
  limit(call, call->until);
  keep_from_children(call->socket.native_handle());
  call->greeting = Greeting::make(options_.secret, options_.rank, call->channel);
  error_code error;
  asio::write(call->socket, asio::buffer(&call->greeting, sizeof(Greeting)), error);
  if (error) {
    fail(call, endpoint, error.message());
    return;
  }
  asio::async_read(call->socket, asio::buffer(&call->answer, sizeof(Answer)),
                   [this, call, endpoint](const error_code& failed, std::size_t) {
                     if (failed) {
                       call->was_silent =
                           call->was_silent || !std::exchange(call->was_dropped, true);
                       fail(call, endpoint,
                            fmt::format("it did not answer the greeting ({})", failed.message()));
                     } else {
                       on_answer(call, endpoint);
                     }
                   });
}

void Caller::on_answer(const Shared& call, const Endpoint& endpoint) {
  const Answer& answer = call->answer;
  if (!is_of_network(answer, options_.secret)) {
    fail(call, endpoint, "what answers there is no rank of this network");
    return;
  }
  call->timer.cancel();
  switch (answer.verdict) {
    case Answer::Verdict::Welcome:
      guest_.on_open(call->rank, call->channel, take_socket(call->socket));
      break;
    case Answer::Verdict::Crossed:
      await_other_call(call);
      break;
    case Answer::Verdict::Full:
      guest_.on_failed(call->rank, call->channel, in_words(answer));
      break;
    default:
      guest_.on_failed(call->rank, call->channel,
                       fmt::format("it has version {} of this library, and rank {} has {}",
                                   version_in(answer.version), options_.rank, library_version()));
  }
}

// That rank's own call comes, unless it ends before: then the next call here finds it out.
void Caller::await_other_call(const Shared& call) {
  error_code ignored;
  (void)call->socket.close(ignored);
  call->timer.expires_after(kCrossedPause);
  call->timer.async_wait([this, call](const error_code&) {
    if (guest_.is_awaited(call->rank, call->channel)) {
      begin(call);
    }
  });
}

}  // namespace bluefog::tcp
