#include "bluefog_cpp/store/tcp_store.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "bluefog_cpp/base/files/unique_fd.hpp"
#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/store/frames.hpp"
#include "bluefog_cpp/store/store_server.hpp"
#include "bluefog_cpp/store_bootstrap.hpp"

namespace bluefog::store {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr const char* kLoopback = "127.0.0.1";

Deadline soon() { return Deadline::after(std::chrono::seconds(20)); }

Store::Bytes bytes_of(std::string_view text) {
  const auto view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}

class TcpStore : public testing::Test {
 protected:
  explicit TcpStore(const std::string& host = kLoopback)
      : server_({.host = host, .secret = "a secret"}) {
    server_.start();
  }

  [[nodiscard]] std::shared_ptr<Store> client() const {
    return make_tcp_store(server_.address(),
                          {.name = "the store", .longest_silence = std::chrono::seconds(5)});
  }
  void expect_service() const {
    const auto store = client();
    store->set("key", bytes_of("value"), soon());
    EXPECT_EQ(store->get("key", soon()), bytes_of("value"));
  }

  StoreServer server_;
};

template <typename Call>
std::string error_of_call(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(TcpStore, KeepsValuesAndNumbers) {
  const auto one = client();
  const auto other = client();
  one->set("a", bytes_of("1"), soon());
  one->set("a", bytes_of("two"), soon());
  EXPECT_EQ(other->get("a", soon()), bytes_of("two"));
  one->set("empty", {}, soon());
  EXPECT_EQ(other->get("empty", soon()), Store::Bytes());
  EXPECT_EQ(one->add("n", 0, soon()), 0);
  EXPECT_EQ(one->add("n", 5, soon()), 5);
  EXPECT_EQ(other->add("n", -7, soon()), -2);
  one->remove("a", soon());
  one->remove("never there", soon());
  EXPECT_EQ(other->get("a", Deadline::after(milliseconds(1))), std::nullopt);
}

TEST_F(TcpStore, GetWaitsForTheValue) {
  const auto store = client();
  // Through the same client: threads have connections of their own.
  std::jthread writer([&] {
    std::this_thread::sleep_for(milliseconds(50));
    store->set("late", bytes_of("x"), soon());
  });
  EXPECT_EQ(store->get("late", soon()), bytes_of("x"));
  EXPECT_EQ(store->get("never", Deadline::after(milliseconds(50))), std::nullopt);
  EXPECT_EQ(store->get("late", Deadline::never()), bytes_of("x"));
}

TEST_F(TcpStore, TakesTheLargestValueAndNoLarger) {
  const auto store = client();
  const Store::Bytes largest(Store::kMaxValueBytes, std::byte{7});
  store->set("large", largest, soon());
  EXPECT_EQ(store->get("large", soon()), largest);
  const Store::Bytes larger(Store::kMaxValueBytes + 1);
  EXPECT_THROW(store->set("larger", larger, soon()), InvalidArgument);
  EXPECT_THROW(store->set("", {}, soon()), InvalidArgument);
  EXPECT_THROW(store->set(std::string(Store::kMaxKeyBytes + 1, 'k'), {}, soon()), InvalidArgument);
  store->set(std::string(Store::kMaxKeyBytes, 'k'), {}, soon());
}

TEST_F(TcpStore, AnotherSecretIsTurnedAway) {
  StoreAddress address = server_.address();
  address.secret = "a guess";
  const auto stranger = make_tcp_store(address);
  EXPECT_THAT(error_of_call([&] { stranger->set("key", {}, soon()); }),
              HasSubstr("turned this process away"));
  expect_service();
}

// A connection that says what it likes.
class Stranger {
 public:
  explicit Stranger(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(static_cast<std::uint16_t>(port));
    ::inet_pton(AF_INET, kLoopback, &place.sin_addr);
    EXPECT_EQ(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&place), sizeof place), 0);
  }
  template <typename T>
  void say(const T& value, std::size_t bytes = sizeof(T)) const {
    EXPECT_EQ(::send(socket_.get(), &value, bytes, MSG_NOSIGNAL), static_cast<ssize_t>(bytes));
  }
  // Whether the other side has closed the connection within `longest`, whatever it said before.
  [[nodiscard]] bool is_dropped(milliseconds longest) const {
    const auto until = Deadline::after(longest);
    while (!until.expired()) {
      pollfd source{socket_.get(), POLLIN, 0};
      ::poll(&source, 1, 10);
      std::array<char, 256> words{};
      const ssize_t count = ::recv(socket_.get(), words.data(), words.size(), MSG_DONTWAIT);
      if (count == 0 || (count < 0 && errno == ECONNRESET)) {
        return true;
      }
    }
    return false;
  }

 private:
  shm::UniqueFd socket_;
};

TEST_F(TcpStore, StrangersAreDroppedAndDisturbNobody) {
  const Stranger silent(server_.address().port);
  const Stranger half(server_.address().port);
  half.say(Greeting{}, sizeof(Greeting) / 2);
  const Stranger other(server_.address().port);
  other.say(std::array<char, sizeof(Greeting)>{"GET / HTTP/1.1\r\n\r\n"});
  EXPECT_TRUE(other.is_dropped(std::chrono::seconds(4)));
  expect_service();
  EXPECT_TRUE(half.is_dropped(std::chrono::seconds(15)));
  EXPECT_TRUE(silent.is_dropped(std::chrono::seconds(15)));
  expect_service();
}

TEST_F(TcpStore, RequestsBeyondTheLimitsAreDropped) {
  for (const Request& request :
       {Request{.action = Action::Set, .key_bytes = 0}, Request{.key_bytes = 1U << 30},
        Request{.key_bytes = 1, .value_bytes = ~std::uint64_t{0}},
        Request{.action = static_cast<Action>(77), .key_bytes = 1}}) {
    const Stranger client(server_.address().port);
    client.say(Greeting{.secret = padded("a secret")});
    client.say(request);
    EXPECT_TRUE(client.is_dropped(std::chrono::seconds(10)));
  }
  expect_service();
}

TEST_F(TcpStore, AStoreThatGoesAwayIsHeard) {
  auto server = std::make_unique<StoreServer>(StoreAddress{.host = kLoopback});
  server->start();
  const auto store = make_tcp_store(server->address(), {.name = "the store of the test"});
  store->set("key", {}, soon());
  const std::string place = server->address().text();
  std::jthread end([&] {
    std::this_thread::sleep_for(milliseconds(100));
    server.reset();
  });
  EXPECT_THAT(error_of_call([&] { (void)store->get("never", Deadline::never()); }),
              HasSubstr("the store of the test at " + place + " is gone"));
  end.join();
  EXPECT_THAT(error_of_call([&] { store->set("key", {}, soon()); }), HasSubstr("cannot connect"));
}

TEST_F(TcpStore, AStoreThatDoesNotAnswerIsAnError) {
  StoreServer silent({.host = kLoopback});  // it listens, and is not started
  const auto store = make_tcp_store(silent.address(), {.longest_silence = milliseconds(100)});
  EXPECT_THAT(error_of_call([&] { store->set("key", {}, Deadline::after(milliseconds(10))); }),
              HasSubstr("does not answer"));
}

TEST_F(TcpStore, AServerMayComeLater) {
  StoreAddress address{.host = kLoopback};
  { address.port = StoreServer(address).address().port; }
  const auto early = make_tcp_store(address, {.server = TcpStoreOptions::Server::MayComeLater});
  std::unique_ptr<StoreServer> server;
  std::jthread begin([&] {
    std::this_thread::sleep_for(milliseconds(100));
    server = std::make_unique<StoreServer>(address);
    server->start();
  });
  early->set("key", bytes_of("x"), soon());
  EXPECT_EQ(early->get("key", soon()), bytes_of("x"));
  begin.join();
}

TEST_F(TcpStore, AHostMayComeLaterAndWhyItIsNotThereIsSaidOnce) {
  std::vector<std::string> said;
  const auto store =
      make_tcp_store({.host = "nowhere.invalid", .port = 1},
                     {.name = "the store of rank 0",
                      .server = TcpStoreOptions::Server::MayComeLater,
                      .on_absence = [&](const std::string& why) { said.push_back(why); }});
  const auto begin = Deadline::Clock::now();
  const std::string error =
      error_of_call([&] { store->set("key", {}, Deadline::after(milliseconds(1200))); });
  EXPECT_THAT(error, HasSubstr("the store of rank 0 at nowhere.invalid:1: cannot connect: "));
  EXPECT_GT(Deadline::Clock::now() - begin, milliseconds(400)) << "it was tried once";
  ASSERT_EQ(said.size(), 1);
  EXPECT_THAT(said[0], HasSubstr("the store of rank 0 at nowhere.invalid:1: cannot connect yet: "));
}

TEST_F(TcpStore, APortThatIsTakenIsAnErrorThatNamesIt) {
  EXPECT_THAT(error_of_call([&] { const StoreServer second(server_.address()); }),
              HasSubstr("store at " + server_.address().text() + ": cannot listen there: "));
  EXPECT_THAT(error_of_call([&] { const StoreServer second({.host = "203.0.113.7"}); }),
              HasSubstr("cannot listen there"));
  EXPECT_THAT(error_of_call([&] { const StoreServer second({.host = "no address"}); }),
              HasSubstr("cannot listen there"));
}

TEST_F(TcpStore, RanksMeetInIt) {
  constexpr int kRanks = 4;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto bootstrap =
          make_store_bootstrap(client(), {.rank = rank, .size = kRanks}, Settings{}, soon());
      const auto copy = bootstrap->duplicate(soon());
      for (int round = 0; round < 10; ++round) {
        const auto blobs = copy->allgather(bytes_of(std::to_string(rank + round)), soon());
        EXPECT_EQ(blobs[kRanks - 1], bytes_of(std::to_string(kRanks - 1 + round)));
      }
    });
  }
}

// The server runs in a process of its own that has no descriptor left, until it is told to go on.
TEST(TcpStoreWithoutDescriptors, ClientsAreToldOfTheLimit) {
  StoreServer server({.host = kLoopback, .secret = "a secret"});
  std::array<int, 2> ready{};
  std::array<int, 2> go_on{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  ASSERT_EQ(::pipe(go_on.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const rlimit limit{64, 64};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    server.start("70 suffice");
    std::vector<shm::UniqueFd> all;
    while (all.empty() || all.back()) {
      all.emplace_back(::dup(ready[1]));
    }
    char byte = 'x';
    (void)!::write(ready[1], &byte, 1);
    (void)!::read(go_on[0], &byte, 1);
    all.clear();
    ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const auto client = [&] { return make_tcp_store(server.address(), {.name = "the store"}); };
  const std::string expected = fmt::format(
      "the store at {} has no room for this process: Too many open files: process {} may "
      "have 64 descriptors (RLIMIT_NOFILE, ulimit -n); 70 suffice",
      server.address().text(), child);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(error_of_call([&] { client()->set("key", {}, soon()); }), expected);
  }
  ASSERT_EQ(::write(go_on[1], &byte, 1), 1);
  EXPECT_EQ(error_of_call([&] {
              // The server may have turned this one away just before.
              while (true) {
                try {
                  return client()->set("key", {}, soon());
                } catch (const TransportError& error) {
                  if (error.what() != expected) {
                    throw;
                  }
                }
              }
            }),
            "no error");
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (const int end : {ready[0], ready[1], go_on[0], go_on[1]}) {
    ::close(end);
  }
}

// Sanitizers need descriptors of their own: UBSan looks at memory through a pipe.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST(TcpStoreWithoutDescriptors, AClientThatHasNoneNamesItsLimit) {
  StoreServer server({.host = kLoopback});
  server.start();
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{64, 64};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    const auto store = make_tcp_store(server.address());
    std::vector<shm::UniqueFd> all;
    bool is_named = true;
    while (all.empty() || all.back()) {
      all.emplace_back(::dup(STDERR_FILENO));
    }
    // Each descriptor more, and the next step fails.
    for (int spare = 0; spare < 4; ++spare) {
      const std::string error = error_of_call([&] { store->set("key", {}, soon()); });
      is_named = is_named && (error == "no error" ||
                              error.find("this process may have 64 descriptors (RLIMIT_NOFILE, "
                                         "ulimit -n)") != std::string::npos);
      all.pop_back();
    }
    ::_exit(is_named ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}
#endif

class TcpStoreOverIpv6 : public testing::Test {};

TEST_F(TcpStoreOverIpv6, Serves) {
  std::unique_ptr<StoreServer> server;
  try {
    server = std::make_unique<StoreServer>(StoreAddress{.host = "::1"});
  } catch (const TransportError& error) {
    GTEST_SKIP() << error.what();
  }
  server->start();
  EXPECT_THAT(server->address().text(), testing::StartsWith("[::1]:"));
  const auto store = make_tcp_store(parse_store_address("A", server->address().text()));
  store->set("key", bytes_of("v6"), soon());
  EXPECT_EQ(store->get("key", soon()), bytes_of("v6"));
}

TEST_F(TcpStoreOverIpv6, ServesBothFamiliesOnAllAddresses) {
  std::unique_ptr<StoreServer> server;
  try {
    server = std::make_unique<StoreServer>(StoreAddress{.host = "::"});
    (void)StoreServer({.host = "::1"});
  } catch (const TransportError& error) {
    GTEST_SKIP() << error.what();
  }
  server->start();
  for (const char* const host : {"127.0.0.1", "::1"}) {
    const auto store = make_tcp_store({.host = host, .port = server->address().port});
    store->set("key", bytes_of(host), soon());
    EXPECT_EQ(store->get("key", soon()), bytes_of(host));
  }
}

TEST(StoreAddress, ReadsWhatItWrites) {
  for (const char* text : {"127.0.0.1:1", "[::1]:65535", "host.example:4711"}) {
    EXPECT_EQ(parse_store_address("BFRUN_STORE", text).text(), text);
  }
  for (const char* text : {"", "host", ":1", "host:", "host:0", "host:65536", "host:x", "::1:5",
                           "[]:5", "host:-1", "host:1x"}) {
    EXPECT_THAT(error_of_call([&] { (void)parse_store_address("BFRUN_STORE", text); }),
                HasSubstr("expected HOST:PORT"))
        << text;
  }
}

}  // namespace
}  // namespace bluefog::store
