// Ranks find each other in the lobby, and strangers do not get in.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <boost/asio.hpp>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "bluefog_cpp/transport/tcp/listening.hpp"
#include "bluefog_cpp/transport/tcp/lobby.hpp"

namespace bluefog::tcp {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

const Address kHere = boost::asio::ip::make_address("127.0.0.1");

class Guest final : public LobbyGuest {
 public:
  std::optional<Answer::Verdict> on_call(int, std::size_t) override {
    ++calls;
    return Answer::Verdict::Welcome;
  }
  bool is_awaited(int, std::size_t) override { return opened == 0; }
  void on_open(int, std::size_t, shm::UniqueFd socket) override {
    const std::lock_guard lock(mutex_);
    sockets_.push_back(std::move(socket));
    ++opened;
  }
  void on_failed(int, std::size_t, const std::string& why) override {
    const std::lock_guard lock(mutex_);
    failure_ = why;
    ++failed;
  }
  void on_ready() override {}
  void on_tick() override {}
  std::string failure() {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  std::atomic<int> calls{0};
  std::atomic<int> opened{0};
  std::atomic<int> failed{0};

 private:
  std::mutex mutex_;
  std::vector<shm::UniqueFd> sockets_;
  std::string failure_;
};

void until(const std::function<bool()>& done) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (!done()) {
    ASSERT_FALSE(deadline.expired());
    std::this_thread::sleep_for(milliseconds(1));
  }
}

/// The lobbies of two ranks.
class TcpLobby : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int rank = 0; rank < 2; ++rank) {
      lobbies_.push_back(std::make_unique<Lobby>(std::vector{kHere}, PortRange{}));
      endpoints_.push_back(lobbies_.back()->listening());
    }
    for (int rank = 0; rank < 2; ++rank) {
      lobbies_[rank]->open({.rank = rank,
                            .secret = secret_,
                            .endpoints = endpoints_,
                            .patience = std::chrono::seconds(10),
                            .greeting_limit = milliseconds(200)},
                           guests_[rank]);
    }
  }
  void TearDown() override { lobbies_.clear(); }

  // A socket of somebody who connects to rank 0 and sends `bytes`.
  shm::UniqueFd connect_and_send(const void* bytes, std::size_t length) {
    shm::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(endpoints_[0].front().port());
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
    EXPECT_EQ(::send(fd.get(), bytes, length, MSG_NOSIGNAL), static_cast<ssize_t>(length));
    return fd;
  }
  static bool is_dropped(const shm::UniqueFd& fd) {
    char byte = 0;
    return ::recv(fd.get(), &byte, 1, 0) <= 0;
  }

  Secret secret_ = Secret::make();
  std::vector<std::vector<Endpoint>> endpoints_;
  std::array<Guest, 2> guests_;
  std::vector<std::unique_ptr<Lobby>> lobbies_;
};

TEST_F(TcpLobby, RanksGetAConnection) {
  lobbies_[1]->call(0, 2);
  until([&] { return guests_[0].opened == 1 && guests_[1].opened == 1; });
}

TEST_F(TcpLobby, StrangersAreDroppedAndNothingElseHappens) {
  const std::string request =
      "GET / HTTP/1.1\r\nHost: somebody\r\nAccept: everything that there is\r\n\r\n";
  ASSERT_GE(request.size(), sizeof(Greeting));
  const Greeting good = Greeting::make(secret_, 1, 0);
  Greeting wrong_secret = good;
  wrong_secret.secret[15] ^= 1U;
  Greeting wrong_rank = good;
  wrong_rank.rank = 2;
  Greeting itself = good;
  itself.rank = 0;
  Greeting wrong_channel = good;
  wrong_channel.channel = 99;
  EXPECT_TRUE(is_dropped(connect_and_send(request.data(), sizeof(Greeting))));
  EXPECT_TRUE(is_dropped(connect_and_send("", 0)));      // says nothing
  EXPECT_TRUE(is_dropped(connect_and_send(&good, 63)));  // half a greeting
  EXPECT_TRUE(is_dropped(connect_and_send(&wrong_secret, 64)));
  EXPECT_TRUE(is_dropped(connect_and_send(&wrong_rank, 64)));
  EXPECT_TRUE(is_dropped(connect_and_send(&itself, 64)));
  EXPECT_TRUE(is_dropped(connect_and_send(&wrong_channel, 64)));
  EXPECT_EQ(guests_[0].calls, 0);
  EXPECT_EQ(guests_[0].failed, 0);
  lobbies_[1]->call(0, 0);
  until([&] { return guests_[0].opened == 1 && guests_[1].opened == 1; });
}

TEST_F(TcpLobby, ManyStrangersHoldUpNobody) {
  std::vector<shm::UniqueFd> strangers;
  for (std::size_t i = 0; i < Lobby::kMostStrangers + 10; ++i) {
    strangers.push_back(connect_and_send("x", 1));
  }
  lobbies_[1]->call(0, 0);
  until([&] { return guests_[0].opened == 1 && guests_[1].opened == 1; });
}

TEST_F(TcpLobby, AnotherVersionIsAnErrorOnBothSides) {
  Greeting old = Greeting::make(secret_, 1, 0);
  std::strcpy(old.version.data(), "0.0.1");
  const auto fd = connect_and_send(&old, sizeof old);
  Answer answer;
  EXPECT_EQ(::recv(fd.get(), &answer, sizeof answer, MSG_WAITALL),
            static_cast<ssize_t>(sizeof answer));
  EXPECT_EQ(answer.verdict, Answer::Verdict::Version);
  EXPECT_EQ(version_in(answer.version), library_version());
  until([&] { return guests_[0].failed == 1; });
  EXPECT_THAT(guests_[0].failure(), HasSubstr("version 0.0.1"));
}

// UBSan looks at memory through a pipe, for which it needs descriptors.
#if !defined(__SANITIZE_ADDRESS__)
// Rank 0 is in a process of its own, which has no descriptor left.
TEST(TcpLobbyWithoutDescriptors, TheLimitIsNamedOnBothSides) {
  const Secret secret = Secret::make();
  Lobby here({kHere}, PortRange{});
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const rlimit limit{64, 64};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    Lobby there({kHere}, PortRange{});
    const std::string endpoint = to_text(there.listening().front());
    Guest guest;
    there.open({.rank = 0, .secret = secret, .endpoints = {there.listening(), {}}}, guest);
    std::vector<shm::UniqueFd> all;
    while (all.empty() || all.back()) {
      all.emplace_back(::dup(ready[1]));
    }
    (void)!::write(ready[1], endpoint.data(), endpoint.size());
    until([&] { return guest.failed == 1; });
    const bool is_named =
        guest.failure().find("64 descriptors (RLIMIT_NOFILE, ulimit -n)") != std::string::npos;
    ::_exit(is_named ? 0 : 1);
  }
  std::array<char, 64> endpoint{};
  ASSERT_GT(::read(ready[0], endpoint.data(), endpoint.size() - 1), 0);
  const std::vector endpoints{std::vector{endpoint_of(endpoint.data())}, here.listening()};
  Guest guest;
  here.open({.rank = 1, .secret = secret, .endpoints = endpoints}, guest);
  here.call(0, 0);
  until([&] { return guest.failed == 1; });
  EXPECT_EQ(guest.failure(),
            "no descriptor is left there for a connection: its process may have 64 (RLIMIT_NOFILE, "
            "ulimit -n)");
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  here.close();
  ::close(ready[0]);
  ::close(ready[1]);
}
#endif

/// Stands in for the lobby of rank 0, which says what the test wants.
class TcpLobbyAlone : public TcpLobby {
 protected:
  void SetUp() override {
    TcpLobby::SetUp();
    lobbies_[0].reset();
    const std::uint16_t port = endpoints_[0].front().port();
    acceptors_ = listen(io_, {kHere}, {.first = port, .last = port});
    acceptors_.front().non_blocking(true);
  }
  boost::asio::ip::tcp::socket next_caller() {
    boost::asio::ip::tcp::socket socket(io_);
    until([&] {
      boost::system::error_code error;
      (void)acceptors_.front().accept(socket, error);
      return !error;
    });
    return socket;
  }
  void answer_next_caller(Answer::Verdict verdict) {
    auto caller = next_caller();
    Greeting greeting;
    boost::asio::read(caller, boost::asio::buffer(&greeting, sizeof greeting));
    EXPECT_TRUE(is_of_network(greeting, secret_, 2));
    const Answer answer = Answer::make(secret_, verdict);
    boost::asio::write(caller, boost::asio::buffer(&answer, sizeof answer));
  }

  boost::asio::io_context io_;
  std::deque<boost::asio::ip::tcp::acceptor> acceptors_;
};

// A greeting may come so late that its sender was taken for a stranger.
TEST_F(TcpLobbyAlone, ARankThatWasDroppedCallsOnceMore) {
  lobbies_[1]->call(0, 0);
  next_caller().close();
  answer_next_caller(Answer::Verdict::Welcome);
  until([&] { return guests_[1].opened == 1; });
  lobbies_[1]->call(0, 1);
  for (int drops = 0; drops < 2; ++drops) {
    next_caller().close();
  }
  until([&] { return guests_[1].failed == 1; });
  EXPECT_THAT(guests_[1].failure(), HasSubstr("it did not answer the greeting"));
}

TEST_F(TcpLobbyAlone, ARankWhoseOwnCallDoesNotComeIsCalledAgain) {
  lobbies_[1]->call(0, 0);
  answer_next_caller(Answer::Verdict::Crossed);
  answer_next_caller(Answer::Verdict::Crossed);
  acceptors_.front().close();  // its process ends
  until([&] { return guests_[1].failed == 1; });
  EXPECT_THAT(guests_[1].failure(), HasSubstr("cannot be reached: 127.0.0.1:"));
}

TEST_F(TcpLobby, ARankThatIsGoneIsAFailure) {
  lobbies_[0].reset();
  lobbies_[1]->call(0, 0);
  until([&] { return guests_[1].failed == 1; });
  EXPECT_THAT(guests_[1].failure(), HasSubstr("cannot be reached: 127.0.0.1:"));
}

TEST_F(TcpLobby, PortsThatAreAllTakenAreNamed) {
  const std::uint16_t port = endpoints_[0].front().port();
  try {
    const Lobby another({kHere}, {.first = port, .last = port});
    FAIL() << "expected TransportError";
  } catch (const TransportError& error) {
    EXPECT_THAT(error.what(), HasSubstr("(BLUEFOG_TCP_PORTS) on 127.0.0.1, all 1 are taken"));
  }
}

TEST(TcpAddresses, AnInterfaceThatIsNotThereIsNamed) {
  const auto local = local_addresses();
  ASSERT_FALSE(local.empty());
  EXPECT_TRUE(chosen_addresses("", local).empty());
  EXPECT_FALSE(chosen_addresses(local.front().interface, local).empty());
  EXPECT_EQ(chosen_addresses(local.front().address.to_string(), local).size(), 1U);
  for (const char* const wrong : {"eth99", "10.0.0.300", "192.0.2.77", "::zz"}) {
    try {
      (void)chosen_addresses(wrong, local);
      FAIL() << "expected InvalidArgument for " << wrong;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), HasSubstr(local.front().interface));
    }
  }
}

TEST(TcpAddresses, EndpointsGoToTextAndBack) {
  for (const char* const text : {"198.18.0.1:4711", "[fd00::1]:80"}) {
    EXPECT_EQ(to_text(endpoint_of(text)), text);
  }
  for (const char* const wrong : {"", "198.18.0.1", "198.18.0.1:0", "host:1", "[::1:1"}) {
    EXPECT_THROW((void)endpoint_of(wrong), InternalError) << wrong;
  }
}

TEST(TcpAddresses, AddressesThatLeadBackAreLeftOut) {
  const std::vector<LocalAddress> local{
      {.interface = "lo", .address = kHere, .prefix = 8},
      {.interface = "eth0", .address = boost::asio::ip::make_address("10.1.0.5"), .prefix = 16},
      {.interface = "br0", .address = boost::asio::ip::make_address("172.17.0.1"), .prefix = 16}};
  const std::vector<Endpoint> theirs{endpoint_of("127.0.0.1:5"), endpoint_of("172.17.0.1:5"),
                                     endpoint_of("192.0.2.1:5"), endpoint_of("10.1.0.6:5")};
  const auto far = reachable(theirs, local, /*is_here=*/false);
  ASSERT_EQ(far.size(), 2U);
  EXPECT_EQ(to_text(far[0]), "10.1.0.6:5");
  EXPECT_EQ(to_text(far[1]), "192.0.2.1:5");
  EXPECT_EQ(to_text(reachable(theirs, local, /*is_here=*/true).front()), "127.0.0.1:5");
}

}  // namespace
}  // namespace bluefog::tcp
