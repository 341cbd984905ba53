#include "bluefog_cpp/device/calls/neighbor_agreement.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "tests/support/error_of.hpp"

namespace bluefog {
namespace {

using testing::error_of;

/// One of two ranks, with an exchange of device memory between them.
class Side {
 public:
  using Asking = NeighborAgreement::Asking;

  Side(int rank, Asking asking)
      : readers_{{.rank = 1 - rank, .weight = rank == 0 ? 0.5 : 0.25}},
        agreement(rank, launches, asking,
                  [rank] { return "rank " + std::to_string(rank) + ", call 3, a call"; }) {}

  void begin(std::size_t sends, std::size_t expects) {
    outgoing_.assign(1, {.bytes = sends, .readers = readers_});
    incoming_.assign(1, {.source = {.rank = readers_[0].rank}, .bytes = expects});
    agreement.begin({.outgoing = outgoing_, .incoming = incoming_});
    spec = {};
    agreement.describe(spec);
    agreement.complete();
  }

  /// Hears the other side's message, in two parts.
  void hear(const Side& other) {
    ASSERT_EQ(other.spec.outgoing.size(), 1U);
    const std::byte* const message = other.spec.outgoing[0].data;
    constexpr std::size_t kBytes = NeighborAgreement::message_bytes();
    ASSERT_EQ(other.spec.outgoing[0].bytes, kBytes);
    agreement.receive(0, 0, message, 20);
    agreement.receive(0, 20, message + 20, kBytes - 20);
  }

 private:
  std::vector<WeightedRank> readers_;
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;

 public:
  LaunchCounts launches{2};
  NeighborAgreement agreement;
  ExchangeSpec spec{};
};

TEST(NeighborAgreement, NeighborsHearEachOthersWeights) {
  Side one(0, Side::Asking::Once);
  Side two(1, Side::Asking::Once);
  one.begin(8, 16);
  two.begin(16, 8);
  one.hear(two);
  two.hear(one);
  EXPECT_EQ(one.agreement.weight_of(1), 0.25);
  EXPECT_EQ(two.agreement.weight_of(0), 0.5);
  EXPECT_EQ(one.agreement.partners(), std::vector<int>{1});
  EXPECT_NO_THROW(one.agreement.check_launched());
}

TEST(NeighborAgreement, SendersAndReceiversThatDoNotMatchAreNamed) {
  Side one(0, Side::Asking::Once);
  Side two(1, Side::Asking::Once);
  one.begin(8, 16);
  two.begin(16, 4);
  EXPECT_EQ(error_of<MismatchError>([&] { one.hear(two); }),
            "rank 0, call 3, a call: senders and receivers do not match: rank 0 sends 8 bytes to "
            "rank 1, which expects 4; rank 1 sends 16 bytes to rank 0, which expects 16");
}

TEST(NeighborAgreement, NeighborsThatAgreeOnceAreAskedOnce) {
  Side one(0, Side::Asking::Once);
  one.begin(8, 16);
  EXPECT_EQ(one.spec.outgoing.size(), 1U);
  EXPECT_EQ(one.spec.incoming.size(), 1U);
  one.begin(8, 16);
  EXPECT_TRUE(one.spec.outgoing.empty());
  EXPECT_TRUE(one.spec.incoming.empty());
  EXPECT_EQ(one.agreement.partners(), std::vector<int>{1});
}

TEST(NeighborAgreement, NeighborsThatOfferPayloadsAreAskedEachTime) {
  Side one(0, Side::Asking::EachTime);
  Side two(1, Side::Asking::EachTime);
  for (std::uint64_t round = 0; round < 2; ++round) {
    one.begin(8, 8);
    two.begin(8, 8);
    two.agreement.set_offer({.bytes = 8, .reader = 0, .offer = {.offset = 256, .slot = round}});
    one.hear(two);
    EXPECT_EQ(one.agreement.offer_of(1).offset, 256U);
    EXPECT_EQ(one.agreement.offer_of(1).slot, round);
    one.agreement.note_launched();
  }
  EXPECT_EQ(one.launches.with(1), 0U);
}

TEST(NeighborAgreement, AnOfferIsTheOnlyPayloadForItsReader) {
  Side one(0, Side::Asking::EachTime);
  one.begin(8, 8);
  EXPECT_EQ(error_of<InternalError>([&] { one.agreement.set_offer({.bytes = 4, .reader = 1}); }),
            "rank 0, call 3, a call: expected one payload for rank 1");
}

TEST(NeighborAgreement, ARankThatHasLaunchedAnotherNumberOfExchangesIsNamed) {
  Side one(0, Side::Asking::Once);
  Side two(1, Side::Asking::Once);
  one.begin(8, 8);
  two.begin(8, 8);
  two.agreement.note_launched();
  EXPECT_EQ(two.launches.with(0), 1U);
  Side later(1, Side::Asking::Once);
  later.launches = two.launches;
  later.begin(8, 8);
  one.hear(later);
  EXPECT_EQ(error_of<PeerFailure>([&] { one.agreement.check_launched(); }),
            "rank 0, call 3, a call: rank 1 has launched 1 exchanges with this rank so far, which "
            "has launched 0: an earlier call failed on the one when the other had launched it");
}

TEST(NeighborAgreement, AnExchangeWithoutBytesIsNotCounted) {
  Side one(0, Side::Asking::Once);
  one.begin(0, 0);
  one.agreement.note_launched();
  EXPECT_EQ(one.launches.with(1), 0U);
}

}  // namespace
}  // namespace bluefog
