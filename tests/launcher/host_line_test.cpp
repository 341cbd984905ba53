#include "tools/bfrun/job/host_line.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tools/bfrun/numbers.hpp"
#include "tools/bfrun/start/network.hpp"

namespace bluefog::bfrun {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::chrono::seconds kSilence{60};
constexpr const char* kSecret = "0123456789012345ABCDEFGHIJKLMNOP";

bool is_readable(int descriptor, int patience_ms) {
  pollfd source{descriptor, POLLIN, 0};
  return poll(&source, 1, patience_ms) == 1;
}

/// bfrun's side, served by a thread.
class Served {
 public:
  Served()
      : line_(
            std::make_unique<HostLine>(std::vector<std::string>{"127.0.0.1"}, kSecret, kSilence)) {
    thread_ = std::thread([this] {
      while (!is_over_) {
        if (is_readable(line_->descriptor(), 10)) {
          serve();
        }
      }
    });
  }
  ~Served() { stop(); }
  Served(const Served&) = delete;
  Served& operator=(const Served&) = delete;

  [[nodiscard]] const std::string& place() const { return line_->place(); }
  /// What has been heard until now; nobody serves any more.
  void stop() {
    is_over_ = true;
    if (thread_.joinable()) {
      thread_.join();
    }
    if (line_) {
      serve();
    }
  }
  void close() {
    stop();
    line_.reset();
  }

  std::vector<int> lost;
  std::vector<int> ended;

 private:
  void serve() {
    line_->serve({[this](int rank, const std::string&) { lost.push_back(rank); },
                  [this](int rank) { ended.push_back(rank); }});
  }

  std::unique_ptr<HostLine> line_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

/// Somebody who connects and sends `bytes`.
Descriptor stranger(const std::string& place, const std::string& bytes) {
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(parse_int(split_list(place)[1]).value_or(0)));
  EXPECT_EQ(connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
  return socket;
}

TEST(HostLine, TellsOfTheEndOfWatchers) {
  Served bfrun;
  {
    const HostLineEnd first(bfrun.place(), 3);
    const HostLineEnd second(bfrun.place(), 12);
    EXPECT_GE(first.descriptor(), 0);
    EXPECT_GE(second.descriptor(), 0);
    EXPECT_FALSE(is_readable(first.descriptor(), 0));
  }
  bfrun.stop();
  EXPECT_THAT(bfrun.ended, ::testing::UnorderedElementsAre(3, 12));
  EXPECT_THAT(bfrun.lost, IsEmpty());
}

// A machine that starts anew answers so; silence needs one to be cut off (ending_test.sh,
// lost_link).
TEST(HostLine, TellsOfBrokenConnections) {
  Served bfrun;
  {
    const HostLineEnd end(bfrun.place(), 3);
    const linger at_once{1, 0};
    ASSERT_EQ(setsockopt(end.descriptor(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
  }
  bfrun.stop();
  EXPECT_THAT(bfrun.lost, ElementsAre(3));
  EXPECT_THAT(bfrun.ended, IsEmpty());
}

TEST(HostLine, WatchersLearnOfItsEnd) {
  Served bfrun;
  const HostLineEnd end(bfrun.place(), 0);
  ASSERT_FALSE(is_readable(end.descriptor(), 0));
  bfrun.close();
  EXPECT_TRUE(is_readable(end.descriptor(), 10'000));
}

TEST(HostLine, DropsStrangers) {
  Served bfrun;
  std::string wrong(64, ' ');
  wrong.replace(0, 7, "bfrun1 ").replace(7, 16, "0123456789abcdef").replace(24, 1, "1");
  std::string negative(64, ' ');
  negative.replace(0, 7, "bfrun1 ").replace(7, 16, std::string(kSecret, 16)).replace(24, 2, "-1");
  for (const std::string& bytes : {wrong, negative, std::string(64, '\0'), std::string(200, 'x')}) {
    const Descriptor socket = stranger(bfrun.place(), bytes);
    char byte = 0;
    EXPECT_LE(recv(socket.get(), &byte, 1, 0), 0);
  }
  std::vector<Descriptor> silent;
  for (int k = 0; k < 200; ++k) {
    silent.push_back(stranger(bfrun.place(), "bfrun1"));
  }
  EXPECT_GE(HostLineEnd(bfrun.place(), 5).descriptor(), 0);
  bfrun.stop();
  EXPECT_THAT(bfrun.lost, IsEmpty());
  EXPECT_THAT(bfrun.ended, ElementsAre(5));
}

TEST(HostLine, WatchersDoWithoutWhereNobodyListens) {
  std::string gone;
  {
    Served bfrun;
    gone = bfrun.place();
    // What answers with another secret is not this bfrun.
    std::string other = gone;
    other.replace(other.find(kSecret) + 16, 16, "0123456789abcdef");
    EXPECT_LT(HostLineEnd(other, 1).descriptor(), 0);
  }
  const std::string nonsense[] = {
      gone, "", "60", "60,x,s,127.0.0.1", "60,0,s,127.0.0.1", "60,1,s,no address"};
  for (const std::string& place : nonsense) {
    EXPECT_LT(HostLineEnd(place, 1).descriptor(), 0) << place;
  }
  EXPECT_EQ(HostLine({"127.0.0.1"}, kSecret, std::chrono::seconds(0)).place(), "");
  EXPECT_EQ(HostLine({}, kSecret, kSilence).place(), "");
}

}  // namespace
}  // namespace bluefog::bfrun
