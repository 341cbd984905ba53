#include "bluefog_cpp/store/store_server.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "bluefog_cpp/base/equal_secrets.hpp"
#include "bluefog_cpp/base/files/spare_descriptor.hpp"
#include "bluefog_cpp/base/run_to_end.hpp"
#include "bluefog_cpp/base/signals_elsewhere.hpp"
#include "bluefog_cpp/base/system_limits.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/store/frames.hpp"

namespace bluefog::store {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr std::chrono::seconds kToGreet(5);
/// Between attempts to take a client where the last one failed.
constexpr std::chrono::milliseconds kPause(100);
/// Beyond any sensible wait; clients ask again.
constexpr std::int64_t kLongestWaitUs = 3'600'000'000;
/// Room in a value for what is written before it.
constexpr std::size_t kMostValueBytes = Store::kMaxValueBytes;

}  // namespace

class Session;

/// Everything that all sessions share. One thread alone touches it.
struct Contents {
  [[nodiscard]] bool has_room(std::size_t more) {
    if (bytes + more > kMostBytes) {
      return false;
    }
    bytes += more;
    return true;
  }

  void forget(const std::string& key) {
    if (const auto found = values.find(key); found != values.end()) {
      bytes -= key.size() + found->second.size();
      values.erase(found);
    }
  }

  /// False where there is no room. Whoever waits for the value gets it.
  bool set(const std::string& key, Store::Bytes value);

  std::map<std::string, Store::Bytes> values;
  std::map<std::string, std::int64_t> numbers;
  std::map<std::string, std::vector<std::weak_ptr<Session>>> waiting;
  std::size_t bytes = 0;
  std::array<char, kSecretBytes> secret{};
  std::string heard_key;
  std::function<void(const std::string& value)> listener;
};

/// One client. It lives as long as something of it is under way.
class Session : public std::enable_shared_from_this<Session> {
 public:
  /// @param refusal why this client cannot stay, which it is told; empty: it can.
  Session(tcp::socket socket, std::shared_ptr<Contents> contents, const std::string& refusal)
      : socket_(std::move(socket)),
        timer_(socket_.get_executor()),
        contents_(std::move(contents)),
        refusal_(refusal.substr(0, kMostReasonBytes)) {}

  void begin() {
    error_code ignored;
    (void)socket_.set_option(tcp::no_delay(true), ignored);
    (void)socket_.set_option(asio::socket_base::keep_alive(true), ignored);
    ::fcntl(socket_.native_handle(), F_SETFD, FD_CLOEXEC);
    timer_.expires_after(kToGreet);
    timer_.async_wait([self = shared_from_this()](error_code error) {
      if (!error) {
        self->drop();
      }
    });
    asio::async_read(socket_, asio::buffer(&greeting_, sizeof greeting_),
                     [self = shared_from_this()](error_code error, std::size_t) {
                       self->timer_.cancel();
                       if (!error) {
                         self->welcome();
                       }
                     });
  }

  /// The value that this session waits for has come.
  void take_value(const std::string& key) {
    if (waits_for_ == key) {
      waits_for_.clear();
      timer_.cancel();
      answer_with_value();
    }
  }

 private:
  void drop() {
    error_code ignored;
    (void)socket_.close(ignored);
  }

  void welcome() {
    if (greeting_.mark != kMark || !equal_secrets(greeting_.secret, contents_->secret)) {
      return drop();
    }
    if (!refusal_.empty()) {
      return refuse();
    }
    asio::async_write(socket_, asio::buffer(&welcome_, sizeof welcome_),
                      [self = shared_from_this()](error_code error, std::size_t) {
                        if (!error) {
                          self->read_request();
                        }
                      });
  }

  void refuse() {
    welcome_.mark = kFullMark;
    refusal_bytes_ = refusal_.size();
    asio::async_write(
        socket_,
        std::array<asio::const_buffer, 3>{asio::buffer(&welcome_, sizeof welcome_),
                                          asio::buffer(&refusal_bytes_, sizeof refusal_bytes_),
                                          asio::buffer(refusal_)},
        [self = shared_from_this()](error_code, std::size_t) { self->drop(); });
  }

  void read_request() {
    asio::async_read(socket_, asio::buffer(&request_, sizeof request_),
                     [self = shared_from_this()](error_code error, std::size_t) {
                       if (!error) {
                         self->read_body();
                       }
                     });
  }

  void read_body() {
    const auto action = static_cast<std::uint32_t>(request_.action);
    const bool is_known = action >= static_cast<std::uint32_t>(Action::Set) &&
                          action <= static_cast<std::uint32_t>(Action::Remove);
    if (!is_known || request_.key_bytes == 0 || request_.key_bytes > Store::kMaxKeyBytes ||
        request_.value_bytes > kMostValueBytes) {
      return drop();
    }
    key_.resize(request_.key_bytes);
    value_.resize(request_.value_bytes);
    asio::async_read(socket_, std::array{asio::buffer(key_), asio::buffer(value_)},
                     [self = shared_from_this()](error_code error, std::size_t) {
                       if (!error) {
                         self->act();
                       }
                     });
  }

  void act() {
    switch (request_.action) {
      case Action::Set:
        return set();
      case Action::Get:
        return get();
      case Action::Add:
        if (!contents_->has_room(contents_->numbers.contains(key_) ? 0 : key_.size())) {
          return answer({.verdict = Verdict::Full});
        }
        return answer({.number = contents_->numbers[key_] += request_.amount});
      case Action::Remove:
        contents_->forget(key_);
        return answer({});
    }
  }

  void set() {
    if (contents_->listener && key_ == contents_->heard_key) {
      contents_->listener({reinterpret_cast<const char*>(value_.data()), value_.size()});
    }
    answer({.verdict = contents_->set(key_, std::move(value_)) ? Verdict::Done : Verdict::Full});
  }

  void get() {
    if (contents_->values.contains(key_)) {
      return answer_with_value();
    }
    if (request_.wait_us <= 0) {
      return answer({.verdict = Verdict::NotThere});
    }
    waits_for_ = key_;
    auto& waiting = contents_->waiting[key_];
    std::erase_if(waiting, [this](const auto& weak) {
      const auto session = weak.lock();
      return !session || session.get() == this || session->waits_for_ != key_;
    });
    waiting.push_back(weak_from_this());
    timer_.expires_after(std::chrono::microseconds(std::min(request_.wait_us, kLongestWaitUs)));
    timer_.async_wait([self = shared_from_this()](error_code error) {
      if (!error && !self->waits_for_.empty()) {
        self->waits_for_.clear();
        self->answer({.verdict = Verdict::NotThere});
      }
    });
  }

  void answer_with_value() {
    sent_ = contents_->values[key_];
    answer({.value_bytes = sent_.size()});
  }

  void answer(const Answer& answer) {
    answer_ = answer;
    if (answer.value_bytes == 0) {
      sent_.clear();
    }
    asio::async_write(socket_,
                      std::array<asio::const_buffer, 2>{asio::buffer(&answer_, sizeof answer_),
                                                        asio::buffer(sent_)},
                      [self = shared_from_this()](error_code error, std::size_t) {
                        if (!error) {
                          self->read_request();
                        }
                      });
  }

  tcp::socket socket_;
  asio::steady_timer timer_;
  std::shared_ptr<Contents> contents_;
  Greeting greeting_;
  Welcome welcome_;
  Request request_;
  Answer answer_;
  std::string key_;
  Store::Bytes value_;
  Store::Bytes sent_;
  std::string waits_for_;
  std::string refusal_;
  std::uint64_t refusal_bytes_ = 0;
};

bool Contents::set(const std::string& key, Store::Bytes value) {
  forget(key);
  if (!has_room(key.size() + value.size())) {
    return false;
  }
  values[key] = std::move(value);
  if (auto sessions = waiting.extract(key)) {
    for (const auto& weak : sessions.mapped()) {
      if (const auto session = weak.lock()) {
        session->take_value(key);
      }
    }
  }
  return true;
}

class StoreServer::Impl {
 public:
  explicit Impl(StoreAddress& address)
      : acceptor_(context_), pause_(context_), contents_(std::make_shared<Contents>()) {
    contents_->secret = padded(address.secret);
    try {
      const tcp::endpoint endpoint(asio::ip::make_address(address.host),
                                   static_cast<std::uint16_t>(address.port));
      acceptor_.open(endpoint.protocol());
      ::fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
      acceptor_.set_option(tcp::acceptor::reuse_address(true));
      if (endpoint.address().is_v6() && endpoint.address().is_unspecified()) {
        acceptor_.set_option(asio::ip::v6_only(false));  // the system may want it otherwise
      }
      acceptor_.bind(endpoint);
      acceptor_.listen();
      address.port = acceptor_.local_endpoint().port();
    } catch (const boost::system::system_error& error) {
      throw TransportError(fmt::format("store at {}: cannot listen there: {}", address.text(),
                                       reason_of(error.code().value())));
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    context_.stop();
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  void start(const std::string& needs) {
    needs_ = needs;
    spare_.keep();
    accept({});
    const SignalsElsewhere during_its_birth;
    try {
      thread_ = std::thread([this] { run_to_end(context_); });
    } catch (const std::system_error& error) {
      throw TransportError(fmt::format("store: the system has no thread left: {}", error.what()));
    }
  }

  void set(const std::string& key, const std::string& value) {
    asio::post(context_, [contents = contents_, key, value] {
      const auto bytes = std::as_bytes(std::span(value));
      (void)contents->set(key, {bytes.begin(), bytes.end()});
    });
  }

  void listen(std::string key, std::function<void(const std::string& value)> listener) {
    contents_->heard_key = std::move(key);
    contents_->listener = std::move(listener);
  }

 private:
  /// @param refusal what the next client is told, which then has to go; empty: it may stay.
  void accept(const std::string& refusal) {
    acceptor_.async_accept([this, refusal](error_code error, tcp::socket socket) {
      if (!error) {
        try {
          std::make_shared<Session>(std::move(socket), contents_, refusal)->begin();
        } catch (const std::exception&) {  // out of memory: that one is dropped, the next may stay
        }
        return refusal.empty() ? accept({}) : go_on_later();
      }
      if (is_out_of_descriptors(error.value()) && spare_.give()) {
        return accept(reason_of(error.value(), fmt::format("process {}", ::getpid())) +
                      (needs_.empty() ? "" : "; ") + needs_);
      }
      go_on_later();
    });
  }

  /// Others end, and give their descriptors back.
  void go_on_later() {
    pause_.expires_after(kPause);
    pause_.async_wait([this](error_code stopped) {
      if (!stopped) {
        spare_.keep();
        accept({});
      }
    });
  }

  asio::io_context context_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  std::shared_ptr<Contents> contents_;
  std::string needs_;
  SpareDescriptor spare_;
  std::thread thread_;
};

StoreServer::StoreServer(StoreAddress address) : address_(std::move(address)) {
  try {
    impl_ = std::make_unique<Impl>(address_);
  } catch (const boost::system::system_error& error) {
    throw TransportError(fmt::format("store at {}: cannot be set up: {}", address_.text(),
                                     reason_of(error.code().value())));
  }
}

StoreServer::~StoreServer() = default;

void StoreServer::set(const std::string& key, const std::string& value) { impl_->set(key, value); }

void StoreServer::listen(std::string key, std::function<void(const std::string& value)> listener) {
  impl_->listen(std::move(key), std::move(listener));
}

void StoreServer::start(const std::string& needs) { impl_->start(needs); }

}  // namespace bluefog::store
