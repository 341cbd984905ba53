#include "bluefog_cpp/store/tcp_store.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/system_limits.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/store/frames.hpp"

namespace bluefog::store {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

using Clock = Deadline::Clock;
using std::chrono::milliseconds;

/// Between attempts to connect to a server that is not there yet, and to a host that is not.
constexpr milliseconds kRetryPause(20);
constexpr milliseconds kHostPause(500);
/// An attempt at a host that does not answer, and how much longer than its caller the last one may
/// take: the system says why in its own time.
constexpr milliseconds kAttempt(5000);
constexpr milliseconds kForReason(1500);

/// The answer to a request, with its value.
struct Reply {
  Answer head;
  Store::Bytes value;
};

std::string in_words(const error_code& error) {
  return error.category() == boost::system::system_category() ? reason_of(error.value())
                                                              : error.message();
}

/// Whether a connection has not come about, of which the first write may be the first to hear.
bool is_unreachable(const error_code& error) {
  return error == asio::error::host_unreachable || error == asio::error::network_unreachable;
}

/// Whether it is the host that is not there yet: names come with it, and routes.
bool may_be_a_host_to_come(const error_code& error) {
  return is_unreachable(error) || error == asio::error::host_not_found ||
         error == asio::error::host_not_found_try_again || error == asio::error::timed_out;
}

/// How long to try, and who hears why it takes longer.
struct Patience {
  Clock::time_point until;            ///< for an answer
  Clock::time_point until_listening;  ///< for somebody who listens
  const std::function<void(const std::string&)>& on_absence;
};

/// One connection. Not to be used any more after an exception.
class Connection {
 public:
  Connection(const StoreAddress& address, std::string what, const Patience& patience)
      : what_(std::move(what)), socket_(context_) {
    connect(address, patience);
    ::fcntl(socket_.native_handle(), F_SETFD, FD_CLOEXEC);
    error_code ignored;
    (void)socket_.set_option(tcp::no_delay(true), ignored);
    (void)socket_.set_option(asio::socket_base::keep_alive(true), ignored);
    greet(address, patience.until);
  }

  Reply ask(Request request, const std::string& key, std::span<const std::byte> value,
            Clock::time_point until) {
    request.key_bytes = static_cast<std::uint32_t>(key.size());
    request.value_bytes = value.size();
    run("is gone", until, [&](auto done) {
      asio::async_write(socket_,
                        std::array<asio::const_buffer, 3>{asio::buffer(&request, sizeof request),
                                                          asio::buffer(key),
                                                          asio::buffer(value.data(), value.size())},
                        done);
    });
    Reply reply;
    run("is gone", until, [&](auto done) {
      asio::async_read(socket_, asio::buffer(&reply.head, sizeof reply.head), done);
    });
    if (reply.head.value_bytes > Store::kMaxValueBytes) {
      throw TransportError(fmt::format("{}: expected an answer of at most {} bytes, found {}",
                                       what_, Store::kMaxValueBytes, reply.head.value_bytes));
    }
    reply.value.resize(reply.head.value_bytes);
    run("is gone", until,
        [&](auto done) { asio::async_read(socket_, asio::buffer(reply.value), done); });
    return reply;
  }

 private:
  /// How an attempt to connect has ended.
  struct Attempt {
    bool is_in_time = false;
    bool is_refused = false;  ///< by one of the addresses, at least: somebody may listen later
    error_code problem{};

    [[nodiscard]] bool has_connected() const { return is_in_time && !problem; }
    [[nodiscard]] bool may_be_repeated() const {
      return !is_in_time || is_refused || may_be_a_host_to_come(problem);
    }
    [[nodiscard]] std::string reason() const {
      return is_in_time ? in_words(problem) : "no answer in time";
    }
  };

  void connect(const StoreAddress& address, const Patience& patience) {
    bool has_told = false;
    while (true) {
      const auto begin = Clock::now();
      const bool waits = begin < patience.until_listening;
      const Attempt attempt = try_to_connect(
          address, waits ? std::min({begin + kAttempt, patience.until_listening + kForReason,
                                     patience.until})
                         : patience.until);
      if (attempt.has_connected()) {
        return;
      }
      const milliseconds pause = attempt.is_refused ? kRetryPause : kHostPause;
      if (!attempt.may_be_repeated() || Clock::now() + pause >= patience.until_listening) {
        throw TransportError(fmt::format("{}: cannot connect: {}", what_, attempt.reason()));
      }
      if (!attempt.is_refused && patience.on_absence && !std::exchange(has_told, true)) {
        patience.on_absence(fmt::format("{}: cannot connect yet: {}", what_, attempt.reason()));
      }
      error_code ignored;
      (void)socket_.close(ignored);
      std::this_thread::sleep_for(pause);
    }
  }

  Attempt try_to_connect(const StoreAddress& address, Clock::time_point until) {
    tcp::resolver resolver(context_);
    tcp::resolver::results_type places;
    Attempt attempt;
    attempt.is_in_time = try_run(until, attempt.problem, [&](auto done) {
      resolver.async_resolve(address.host, std::to_string(address.port),
                             [&places, done](error_code error, auto results) {
                               places = std::move(results);
                               done(error, 0);
                             });
    });
    if (!attempt.has_connected()) {
      return attempt;
    }
    // A name may have addresses that this host cannot reach beside the one that refuses.
    const auto note = [&](error_code error, const auto&) {
      attempt.is_refused = attempt.is_refused || error == asio::error::connection_refused;
      return true;
    };
    attempt.is_in_time = try_run(until, attempt.problem, [&](auto done) {
      asio::async_connect(socket_, places, note,
                          [done](error_code error, const auto&) { done(error, 0); });
    });
    if (attempt.problem == asio::error::operation_aborted && !places.empty()) {
      // Boost.Asio's word where no socket could be made: the next try says why.
      error_code why;
      (void)socket_.open(places->endpoint().protocol(), why);
      attempt.problem = why ? why : attempt.problem;
    }
    attempt.is_refused = attempt.is_refused || attempt.problem == asio::error::connection_refused;
    return attempt;
  }

  void greet(const StoreAddress& address, Clock::time_point until) {
    const Greeting greeting{.secret = padded(address.secret)};
    Welcome welcome{0};
    error_code problem;
    const bool is_in_time = try_run(until, problem, [&](auto done) {
      asio::async_write(socket_, asio::buffer(&greeting, sizeof greeting), done);
    });
    if (is_in_time && is_unreachable(problem)) {
      throw TransportError(fmt::format("{}: cannot connect: {}", what_, in_words(problem)));
    }
    throw_if_failed("turned this process away", is_in_time, problem);
    run("turned this process away: it serves others, or is no store of bluefog_cpp", until,
        [&](auto done) {
          asio::async_read(socket_, asio::buffer(&welcome, sizeof welcome), done);
        });
    if (welcome.mark == kFullMark) {
      throw TransportError(
          fmt::format("{} has no room for this process: {}", what_, read_refusal(until)));
    }
    if (welcome.mark != kMark) {
      throw TransportError(fmt::format(
          "{}: expected a store of this version of bluefog_cpp, found something else there",
          what_));
    }
  }

  std::string read_refusal(Clock::time_point until) {
    std::uint64_t bytes = 0;
    run("is gone", until,
        [&](auto done) { asio::async_read(socket_, asio::buffer(&bytes, sizeof bytes), done); });
    std::string reason(std::min<std::uint64_t>(bytes, kMostReasonBytes), ' ');
    run("is gone", until,
        [&](auto done) { asio::async_read(socket_, asio::buffer(reason), done); });
    return reason;
  }

  /// False where `until` passed before the end.
  template <typename Begin>
  bool try_run(Clock::time_point until, error_code& result, const Begin& begin) {
    bool is_done = false;
    begin([&](error_code error, std::size_t) {
      result = error;
      is_done = true;
    });
    context_.restart();
    while (!is_done && context_.run_one_until(until) > 0) {
    }
    const bool is_in_time = is_done;
    if (!is_in_time) {
      error_code ignored;
      (void)socket_.close(ignored);  // which ends it, before what it refers to goes
      context_.restart();
      context_.run();
    }
    return is_in_time;
  }

  template <typename Begin>
  void run(const char* failure, Clock::time_point until, const Begin& begin) {
    error_code error;
    const bool is_in_time = try_run(until, error, begin);
    throw_if_failed(failure, is_in_time, error);
  }

  void throw_if_failed(const char* failure, bool is_in_time, const error_code& error) const {
    if (!is_in_time) {
      throw TransportError(fmt::format("{} does not answer", what_));
    }
    if (error) {
      throw TransportError(fmt::format("{} {} ({})", what_, failure, error.message()));
    }
  }

  std::string what_;
  asio::io_context context_{1};
  tcp::socket socket_;
};

class TcpStore final : public Store {
 public:
  TcpStore(StoreAddress address, const TcpStoreOptions& options)
      : address_(std::move(address)),
        description_(fmt::format("{} at {}", options.name, address_.text())),
        longest_silence_(options.longest_silence),
        on_absence_(options.on_absence),
        server_comes_later_(options.server == TcpStoreOptions::Server::MayComeLater) {}

  void set(const std::string& key, std::span<const std::byte> value, Deadline deadline) override {
    if (value.size() > kMaxValueBytes) {
      throw InvalidArgument(fmt::format("{}, key {}: expected at most {} bytes, found {}",
                                        description_, key, kMaxValueBytes, value.size()));
    }
    (void)ask({.action = Action::Set}, key, value, deadline);
  }

  [[nodiscard]] std::optional<Bytes> get(const std::string& key, Deadline deadline) override {
    const auto left = deadline.is_set() ? deadline.when() - Clock::now() : std::chrono::hours(1);
    const auto wait = std::chrono::duration_cast<std::chrono::microseconds>(left).count();
    Reply reply =
        ask({.action = Action::Get, .wait_us = std::max<std::int64_t>(wait, 0)}, key, {}, deadline);
    if (reply.head.verdict == Verdict::NotThere) {
      return std::nullopt;
    }
    return std::move(reply.value);
  }

  std::int64_t add(const std::string& key, std::int64_t amount, Deadline deadline) override {
    return ask({.action = Action::Add, .amount = amount}, key, {}, deadline).head.number;
  }

  void remove(const std::string& key, Deadline deadline) override {
    (void)ask({.action = Action::Remove}, key, {}, deadline);
  }

  [[nodiscard]] std::string description() const override { return description_; }

 private:
  Reply ask(const Request& request, const std::string& key, std::span<const std::byte> value,
            Deadline deadline) {
    if (key.empty() || key.size() > kMaxKeyBytes) {
      throw InvalidArgument(fmt::format("{}: expected a key of 1 to {} characters, found {}",
                                        description_, kMaxKeyBytes, key.size()));
    }
    const auto now = Clock::now();
    const auto until =
        (deadline.is_set() ? std::max(deadline.when(), now) : now + std::chrono::hours(2)) +
        longest_silence_;
    auto connection = take_idle();
    if (!connection) {
      const bool may_come_later = server_comes_later_ && !has_been_reached_;
      connection = connect({.until = until,
                            .until_listening = may_come_later ? until - longest_silence_ : now,
                            .on_absence = on_absence_});
      has_been_reached_ = true;
    }
    Reply reply = connection->ask(request, key, value, until);
    give_back(std::move(connection));
    if (reply.head.verdict == Verdict::Full) {
      throw TransportError(
          fmt::format("{} is full: it keeps at most {} bytes", description_, kMostBytes));
    }
    return reply;
  }

  std::unique_ptr<Connection> connect(const Patience& patience) {
    try {
      return std::make_unique<Connection>(address_, description_, patience);
    } catch (const boost::system::system_error& error) {
      throw TransportError(
          fmt::format("{}: cannot connect: {}", description_, in_words(error.code())));
    }
  }

  std::unique_ptr<Connection> take_idle() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) {
      return nullptr;
    }
    auto connection = std::move(idle_.back());
    idle_.pop_back();
    return connection;
  }

  void give_back(std::unique_ptr<Connection> connection) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(connection));
  }

  StoreAddress address_;
  std::string description_;
  milliseconds longest_silence_;
  std::function<void(const std::string&)> on_absence_;
  bool server_comes_later_;
  std::atomic<bool> has_been_reached_{false};
  std::mutex mutex_;
  std::vector<std::unique_ptr<Connection>> idle_;
};

}  // namespace

std::shared_ptr<Store> make_tcp_store(const StoreAddress& address, const TcpStoreOptions& options) {
  return std::make_shared<TcpStore>(address, options);
}

}  // namespace bluefog::store
