#include "bluefog_cpp/transport/tcp/lobby.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio.hpp>
#include <cerrno>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "bluefog_cpp/base/files/spare_descriptor.hpp"
#include "bluefog_cpp/base/run_to_end.hpp"
#include "bluefog_cpp/base/signals_elsewhere.hpp"
#include "bluefog_cpp/base/system_limits.hpp"
#include "bluefog_cpp/transport/tcp/caller.hpp"
#include "bluefog_cpp/transport/tcp/fork_closed.hpp"
#include "bluefog_cpp/transport/tcp/listening.hpp"

namespace bluefog::tcp {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

/// How long a descriptor may be missing for those who call: others are given back, mostly.
constexpr std::chrono::seconds kToFindRoom{2};

}  // namespace

/// The thread's own things. Handlers run on that thread alone.
class Lobby::Hall {
 public:
  Hall(const std::vector<Address>& addresses, PortRange ports)
      : acceptors_(listen(io_, addresses, ports)) {
    for (tcp::acceptor& acceptor : acceptors_) {
      closed_in_forks_.emplace_back(acceptor.native_handle());
    }
  }

  [[nodiscard]] std::vector<Endpoint> listening() const {
    std::vector<Endpoint> endpoints;
    for (const tcp::acceptor& acceptor : acceptors_) {
      endpoints.push_back(acceptor.local_endpoint());
    }
    return endpoints;
  }

  void open(Options options, LobbyGuest& guest) {
    options_ = std::move(options);
    guest_ = &guest;
    caller_.emplace(io_, options_, guest);
    spare_.keep();
    for (tcp::acceptor& acceptor : acceptors_) {
      accept(acceptor);
    }
    if (options_.watched >= 0) {
      watched_.assign(::fcntl(options_.watched, F_DUPFD_CLOEXEC, 0));
      watch();
    }
    tick();
    const SignalsElsewhere during_its_birth;
    thread_ = std::thread([this] { run_to_end(io_); });
  }

  void call(int rank, std::size_t channel) {
    asio::post(io_, [this, rank, channel] { caller_->call(rank, channel); });
  }

  void stop_listening() {
    asio::post(io_, [this] {
      closed_in_forks_.clear();
      for (tcp::acceptor& acceptor : acceptors_) {
        error_code ignored;
        (void)acceptor.close(ignored);
      }
    });
  }

  void close() noexcept {
    io_.stop();
    if (thread_.joinable()) {
      thread_.join();
    }
  }

 private:
  /// Somebody who has connected and not greeted yet.
  struct Stranger {
    explicit Stranger(tcp::socket from) : socket(std::move(from)), timer(socket.get_executor()) {}
    tcp::socket socket;
    asio::steady_timer timer;
    Greeting greeting{};
    /// The error for which it cannot stay, or 0.
    int shortage = 0;
  };

  // ---- listening

  /// @param shortage as of the next stranger.
  void accept(tcp::acceptor& acceptor, int shortage = 0) {
    acceptor.async_accept([this, &acceptor, shortage](const error_code& error, tcp::socket socket) {
      if (!error) {
        try {
          meet(std::make_shared<Stranger>(std::move(socket)), shortage);
        } catch (const std::exception&) {  // out of memory: that one is dropped, the next may stay
        }
      } else if (!acceptor.is_open()) {
        return;
      }
      if (error == asio::error::connection_aborted || (!error && shortage == 0)) {
        full_until_ = {};
        accept(acceptor);
      } else if (error && may_turn_away(error.value()) && spare_.give()) {
        accept(acceptor, error.value());
      } else {
        accept_later(acceptor);
      }
    });
  }

  /// Whether a descriptor has been missing for so long that a caller is refused.
  bool may_turn_away(int error) {
    if (!is_out_of_descriptors(error)) {
      return false;
    }
    if (!full_until_.is_set()) {
      full_until_ = Deadline::after(kToFindRoom);
    }
    return full_until_.expired();
  }

  /// Those who call wait in the system's queue.
  void accept_later(tcp::acceptor& acceptor) {
    auto pause = std::make_shared<asio::steady_timer>(io_, std::chrono::milliseconds(100));
    pause->async_wait([this, &acceptor, pause](const error_code&) {
      if (acceptor.is_open()) {
        spare_.keep();
        accept(acceptor);
      }
    });
  }

  void meet(const std::shared_ptr<Stranger>& stranger, int shortage) {
    stranger->shortage = shortage;
    keep_from_children(stranger->socket.native_handle());
    std::erase_if(strangers_, [](const auto& weak) { return weak.expired(); });
    if (strangers_.size() >= kMostStrangers) {
      if (const auto oldest = strangers_.front().lock()) {
        drop(*oldest);
      }
      strangers_.pop_front();
    }
    strangers_.push_back(stranger);
    stranger->timer.expires_after(options_.greeting_limit);
    stranger->timer.async_wait([stranger](const error_code& error) {
      if (!error) {
        drop(*stranger);
      }
    });
    asio::async_read(stranger->socket, asio::buffer(&stranger->greeting, sizeof(Greeting)),
                     [this, stranger](const error_code& error, std::size_t) {
                       stranger->timer.cancel();
                       if (!error) {
                         judge(*stranger);
                       }
                     });
  }

  static void drop(Stranger& stranger) {
    error_code ignored;
    (void)stranger.socket.close(ignored);
  }

  void judge(Stranger& stranger) {
    const Greeting& greeting = stranger.greeting;
    if (!is_of_network(greeting, options_.secret, static_cast<int>(options_.endpoints.size())) ||
        greeting.rank == options_.rank) {
      drop(stranger);
      return;
    }
    if (stranger.shortage != 0) {
      turn_away(stranger);
      return;
    }
    std::optional<Answer::Verdict> verdict = Answer::Verdict::Version;
    if (version_in(greeting.version) == library_version()) {
      verdict = guest_->on_call(greeting.rank, greeting.channel);
    } else {
      guest_->on_failed(
          greeting.rank, greeting.channel,
          fmt::format("it has version {} of this library, and rank {} has {}",
                      version_in(greeting.version), options_.rank, library_version()));
    }
    if (!verdict) {
      drop(stranger);
      return;
    }
    const Answer answer = Answer::make(options_.secret, *verdict);
    error_code error;
    // So few bytes find room in a new connection.
    asio::write(stranger.socket, asio::buffer(&answer, sizeof answer), error);
    if (*verdict != Answer::Verdict::Welcome) {
      drop(stranger);
    } else if (error) {
      guest_->on_failed(greeting.rank, greeting.channel, error.message());
    } else {
      guest_->on_open(greeting.rank, greeting.channel, take_socket(stranger.socket));
    }
  }

  void turn_away(Stranger& stranger) {
    Answer answer = Answer::make(options_.secret, Answer::Verdict::Full);
    answer.descriptors = stranger.shortage == EMFILE ? descriptor_limit() : 0;
    error_code ignored;
    asio::write(stranger.socket, asio::buffer(&answer, sizeof answer), ignored);
    drop(stranger);
    guest_->on_failed(stranger.greeting.rank, stranger.greeting.channel,
                      reason_of(stranger.shortage));
  }

  // ---- for the guest

  void watch() {
    watched_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const error_code& error) {
      if (!error) {
        guest_->on_ready();
        watch();
      }
    });
  }

  void tick() {
    ticks_.expires_after(options_.tick);
    ticks_.async_wait([this](const error_code& error) {
      if (!error) {
        guest_->on_tick();
        tick();
      }
    });
  }

  asio::io_context io_{1};
  std::deque<tcp::acceptor> acceptors_;
  std::vector<ForkClosed> closed_in_forks_;
  std::deque<std::weak_ptr<Stranger>> strangers_;
  asio::posix::stream_descriptor watched_{io_};
  asio::steady_timer ticks_{io_};
  SpareDescriptor spare_;
  Deadline full_until_;
  Options options_{};
  LobbyGuest* guest_ = nullptr;
  std::optional<Caller> caller_;
  std::thread thread_;
};

Lobby::Lobby(const std::vector<Address>& addresses, PortRange ports)
    : hall_(std::make_shared<Hall>(addresses, ports)) {}

Lobby::~Lobby() { close(); }

std::vector<Endpoint> Lobby::listening() const { return hall_->listening(); }
void Lobby::open(Options options, LobbyGuest& guest) { hall_->open(std::move(options), guest); }
void Lobby::call(int rank, std::size_t channel) { hall_->call(rank, channel); }
void Lobby::stop_listening() { hall_->stop_listening(); }
void Lobby::close() noexcept { hall_->close(); }

}  // namespace bluefog::tcp
