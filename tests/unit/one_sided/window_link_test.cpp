// Messages about windows over a scripted network: cut anywhere, taken back, and of owners that go.
#include "bluefog_cpp/one_sided/window_link.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/unit/engine/scripted_transport.hpp"

namespace bluefog {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::rising_bytes;
using testing::ScriptedTransport;
using Bytes = std::vector<std::byte>;
using Kind = WindowMessage::Kind;

constexpr int kPeer = 3;

class Target final : public WindowTarget {
 public:
  void store(int, const WindowMessage&, std::span<const std::byte>) override {}
  std::span<const std::byte> load(int, double&, Bytes&) override { return {}; }
  void set_stamp(int /*source*/, std::int64_t /*stamp*/) override {}
  bool try_lock(int) override { return true; }
  [[nodiscard]] int holder() const override { return -1; }
  void unlock(int) override {}
};

Kind kind_of(const ScriptedTransport::Sent& head) {
  WindowMessage message;
  std::memcpy(&message, head.data.data(), sizeof message);
  return message.kind;
}

class WindowLinks : public ::testing::Test {
 protected:
  void receive_from_peer(const WindowMessage& head, const Bytes& payload) {
    network_.send_message(kPeer, {}, std::as_bytes(std::span(&head, 1)));
    if (!payload.empty()) {
      network_.send_message(kPeer, {}, payload);
    }
  }
  [[nodiscard]] const std::vector<ScriptedTransport::Sent>& sent() const {
    return network_.outbox()->messages;
  }

  ScriptedTransport network_;
  Bytes room_;
  std::vector<std::pair<Kind, Bytes>> served_;
  WindowLink link_{network_,
                   0,
                   kPeer,
                   {.room =
                        [this](const WindowMessage& message) {
                          return room_.size() == message.bytes ? std::span(room_)
                                                               : std::span<std::byte>{};
                        },
                    .serve =
                        [this](const WindowMessage& message, std::span<const std::byte> payload) {
                          const auto own = payload.first(room_.empty() ? message.bytes : 0);
                          served_.emplace_back(message.kind, Bytes(own.begin(), own.end()));
                        }}};
};

TEST_F(WindowLinks, SendAHeadThenItsPayloadAsThereIsRoom) {
  const Bytes payload = rising_bytes(100, 1);
  network_.set_room(sizeof(WindowMessage) + 60);
  link_.post({.head = {.kind = Kind::Put, .bytes = payload.size()}, .payload = payload});
  link_.post({.head = {.kind = Kind::Unlock}});
  EXPECT_TRUE(link_.send());
  EXPECT_TRUE(link_.has_posted());
  ASSERT_EQ(sent().size(), 2U);
  EXPECT_EQ(sent()[1].data.size(), 60U);
  network_.set_room(1U << 20U);
  EXPECT_TRUE(link_.send());
  EXPECT_FALSE(link_.has_posted());
  EXPECT_TRUE(link_.is_quiet());
  ASSERT_EQ(sent().size(), 3U);
  EXPECT_EQ(sent()[1].data, payload);
  EXPECT_THAT(sent()[1].readers, ElementsAre(kPeer));
}

// Two ranks that read each other's windows would take turns: each one's request behind the values
// that it sends.
TEST_F(WindowLinks, AskBesideAPayloadThatIsUnderWay) {
  const Bytes payload = rising_bytes(100, 1);
  network_.set_room(sizeof(WindowMessage) + 60);
  link_.post({.head = {.kind = Kind::Done, .bytes = payload.size()}, .payload = payload});
  EXPECT_TRUE(link_.send());
  for (const Kind kind : {Kind::Lock, Kind::Unlock, Kind::Get}) {
    link_.post({.head = {.kind = kind}});
  }
  network_.set_room(sizeof(WindowMessage));
  EXPECT_TRUE(link_.send());
  ASSERT_EQ(sent().size(), 3U);
  EXPECT_EQ(sent()[1].data.size(), 60U);
  EXPECT_NE(sent()[2].lane, sent()[1].lane);
  EXPECT_EQ(kind_of(sent()[2]), Kind::Get);
  network_.set_room(1U << 20U);
  EXPECT_TRUE(link_.send());
  ASSERT_EQ(sent().size(), 5U);
  EXPECT_EQ(sent()[1].data, payload);
  // A mutex ends behind what was written under it, and behind the request that it takes back.
  EXPECT_EQ(kind_of(sent()[3]), Kind::Lock);
  EXPECT_EQ(kind_of(sent()[4]), Kind::Unlock);
  EXPECT_EQ(sent()[3].lane, sent()[1].lane);
  EXPECT_EQ(sent()[4].lane, sent()[1].lane);
}

TEST_F(WindowLinks, ServeARequestBesideAPayloadThatComes) {
  const Bytes payload = rising_bytes(200, 3);
  const WindowMessage put{.kind = Kind::Put, .bytes = payload.size()};
  network_.send_message(kPeer, {}, std::as_bytes(std::span(&put, 1)));
  MessageHeader header;
  header.bytes = payload.size();
  network_.begin_message(kPeer, header);
  network_.deliver(kPeer, std::span(payload).first(150));
  const WindowMessage get{.kind = Kind::Get};
  network_.send_message(kPeer, {}, std::as_bytes(std::span(&get, 1)), Lane::Deep);
  EXPECT_TRUE(link_.receive());
  EXPECT_THAT(served_, ElementsAre(std::pair(Kind::Get, Bytes{})));
  network_.deliver(kPeer, std::span(payload).subspan(150));
  EXPECT_TRUE(link_.receive());
  ASSERT_EQ(served_.size(), 2U);
  EXPECT_EQ(served_.back(), std::pair(Kind::Put, payload));
}

TEST_F(WindowLinks, CopyAPayloadThatHasBegunAndTakeBackOneThatHasNot) {
  Bytes first = rising_bytes(100, 1);
  Bytes second = rising_bytes(100, 50);
  const Bytes expected = first;
  const int requests[2] = {};
  network_.set_room(sizeof(WindowMessage) + 10);
  link_.post({.head = {.bytes = first.size()}, .payload = first, .request = &requests[0]});
  link_.post({.head = {.bytes = second.size()}, .payload = second, .request = &requests[1]});
  EXPECT_TRUE(link_.send());
  link_.let_go_of(&requests[1]);
  link_.let_go_of(&requests[0]);
  std::ranges::fill(first, std::byte{0});  // its caller has gone on
  network_.set_room(1U << 20U);
  EXPECT_TRUE(link_.send());
  ASSERT_EQ(sent().size(), 2U) << "the second request was taken back";
  EXPECT_EQ(sent()[1].data, expected);
}

TEST_F(WindowLinks, CopyThePayloadsOfAnOwnerThatGoes) {
  Bytes values = rising_bytes(64, 7);
  const Bytes expected = values;
  auto target = std::make_shared<Target>();
  const std::weak_ptr<Target> life = target;
  link_.post({.head = {.bytes = values.size()}, .payload = values, .owner = target});
  link_.copy_payloads_of(target);
  target.reset();
  EXPECT_TRUE(life.expired());
  std::ranges::fill(values, std::byte{0});
  EXPECT_TRUE(link_.send());
  EXPECT_EQ(sent().back().data, expected);
}

TEST_F(WindowLinks, ServeAMessageWhenItsPayloadIsWhole) {
  const Bytes payload = rising_bytes(200, 3);
  const WindowMessage head{.kind = Kind::Put, .bytes = payload.size()};
  network_.send_message(kPeer, {}, std::as_bytes(std::span(&head, 1)));
  network_.begin_message(kPeer, [&] {
    MessageHeader header;
    header.bytes = payload.size();
    return header;
  }());
  network_.deliver(kPeer, std::span(payload).first(150));
  EXPECT_TRUE(link_.receive());
  EXPECT_THAT(served_, IsEmpty());
  EXPECT_FALSE(link_.is_quiet());
  network_.deliver(kPeer, std::span(payload).subspan(150));
  EXPECT_TRUE(link_.receive());
  EXPECT_THAT(served_, ElementsAre(std::pair(Kind::Put, payload)));
  EXPECT_TRUE(link_.is_quiet());
}

TEST_F(WindowLinks, ReceiveAnAnswerWhereItsAskerWaits) {
  const Bytes payload = rising_bytes(96, 9);
  room_.resize(payload.size());
  receive_from_peer({.kind = Kind::Done, .bytes = payload.size()}, payload);
  EXPECT_TRUE(link_.receive());
  EXPECT_EQ(served_.size(), 1U);
  EXPECT_EQ(room_, payload);
}

TEST_F(WindowLinks, RefuseAMessageOfAnotherLength) {
  network_.send_message(kPeer, {}, rising_bytes(5, 0));
  try {
    link_.receive();
    FAIL() << "a head of 5 bytes was taken";
  } catch (const InternalError& error) {
    EXPECT_THAT(error.what(), HasSubstr("rank 0: rank 3 sent 5 bytes of a window's message"));
  }
}

}  // namespace
}  // namespace bluefog
