#include "ops/message.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "bluefog_cpp/error.hpp"
#include "ops/collectives.hpp"
#include "ops/pair_gossip.hpp"
#include "tests/bodies/failure_of.hpp"
#include "tests/support/ranks.hpp"
#include "tests/support/values.hpp"

namespace bluefog::testing {
namespace {

using ::testing::HasSubstr;

int ahead(const Context& context) { return (context.rank() + 1) % context.size(); }
int behind(const Context& context) {
  return (context.rank() + context.size() - 1) % context.size();
}

void receive(Context& context, Values& values, int source, int tag) {
  ops::receive_nonblocking(context, values.view(), source, tag).wait();
}

TEST(Message, EverySizeRoundARing) {
  on_ranks({.at_least = 2}, [](Context& context) {
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{100}, std::size_t{40'000}, large(400'000)}) {
      Values sent = small_integers(Dtype::Float32, count, context.rank());
      Values got(Dtype::Float32, count);
      const Work receipt = ops::receive_nonblocking(context, got.view(), behind(context), 0);
      const Work sending = ops::send_nonblocking(context, sent.view(), ahead(context), 0);
      receipt.wait();
      sending.wait();
      ASSERT_EQ(got, small_integers(Dtype::Float32, count, behind(context)));
    }
  });
}

TEST(Message, TagsInAnotherOrderThanTheyWereSent) {
  on_ranks({.at_least = 2}, [](Context& context) {
    constexpr int kTags[] = {5, 7, 5, 9, 7};
    std::vector<Values> sent;
    std::vector<Work> works;
    for (std::size_t k = 0; k < std::size(kTags); ++k) {
      sent.push_back(small_integers(Dtype::Int32, 10 + 30'000 * (k % 2), static_cast<int>(k)));
    }
    for (std::size_t k = 0; k < std::size(kTags); ++k) {
      works.push_back(ops::send_nonblocking(context, sent[k].view(), ahead(context), kTags[k]));
    }
    for (const std::size_t k : {3U, 1U, 4U, 0U, 2U}) {
      Values got(Dtype::Int32, sent[k].count());
      receive(context, got, behind(context), kTags[k]);
      ASSERT_EQ(got, sent[k]) << "message " << k;
    }
    for (const Work& work : works) {
      work.wait();
    }
  });
}

TEST(Message, InNoOrderWithOtherCalls) {
  on_ranks({.at_least = 2, .at_most = 2}, [](Context& context) {
    const int other = 1 - context.rank();
    Values got(Dtype::Float32, 1000);
    const Work receipt = ops::receive_nonblocking(context, got.view(), other, 1);
    ops::barrier(context);
    float mean = static_cast<float>(context.rank());
    ops::pair_gossip(context, {.data = &mean, .count = 1}, other);
    Values sent = small_integers(Dtype::Float32, 1000, context.rank());
    const Work sending = ops::send_nonblocking(context, sent.view(), other, 1);
    ops::allreduce(context, {.data = &mean, .count = 1});
    receipt.wait();
    sending.wait();
    EXPECT_EQ(mean, 0.5F);
    EXPECT_EQ(got, small_integers(Dtype::Float32, 1000, other));
  });
}

TEST(Message, ThatDoesNotFitItsReceiptIsAnErrorOnBothRanks) {
  on_ranks({.at_least = 2, .at_most = 2}, [](Context& context) {
    Values values(Dtype::Float32, 4);
    Values answer(Dtype::Int8, 1);
    const std::string none = "no error";
    std::string error = none;
    if (context.rank() == 0) {
      ops::send_nonblocking(context, values.view(), 1, 3).wait();
      error = failure_of([&] { receive(context, answer, 1, 0); }).second;
    } else {
      Values other(Dtype::Float64, 5);
      EXPECT_THAT(failure_of([&] { receive(context, other, 0, 3); }).second,
                  HasSubstr("rank 0 called message(float32[4], name 'tag 3'), rank 1 called "
                            "message(float64[5], name 'tag 3')"));
      ops::send_nonblocking(context, answer.view(), 0, 0).wait();
    }
    // The answer may overtake the refusal, of which a later call tells then.
    for (int call = 0; call < 50; ++call) {
      const std::string late = failure_of([&] { ops::barrier(context); }).second;
      error = error == none ? late : error;
    }
    EXPECT_THAT(error, context.rank() == 0 ? HasSubstr("rank 1 did not accept this rank's message")
                                           : HasSubstr(none));
    // The message that was refused is gone, and the next one of its tag is the next one.
    Values sent = small_integers(Dtype::Float32, 4, 7);
    if (context.rank() == 0) {
      ops::send_nonblocking(context, sent.view(), 1, 3).wait();
    } else {
      Values got(Dtype::Float32, 4);
      receive(context, got, 0, 3);
      EXPECT_EQ(got, sent);
    }
  });
}

TEST(Message, AReceiptThatHasTimedOutLeavesTheNextOneItsMessage) {
  on_ranks({.at_least = 2,
            .at_most = 2,
            .settings = [](Settings& settings,
                           int) { settings.timeout = std::chrono::milliseconds(300); }},
           [](Context& context) {
             Values first = small_integers(Dtype::Float32, 50, 1);
             Values second = small_integers(Dtype::Float32, 50, 2);
             if (context.rank() == 1) {
               Values got(Dtype::Float32, 50);
               EXPECT_THAT(failure_of([&] { receive(context, got, 0, 4); }).second,
                           HasSubstr("receipt 1, message(float32[50], name 'tag 4'): nothing moved "
                                     "for 0.3 s"));
             }
             meet(context);
             if (context.rank() == 0) {
               const Work late = ops::send_nonblocking(context, first.view(), 1, 4);
               ops::send_nonblocking(context, second.view(), 1, 4).wait();
               late.wait();
             } else {
               Values got(Dtype::Float32, 50);
               receive(context, got, 0, 4);
               EXPECT_EQ(got, second);
             }
           });
}

TEST(Message, ArgumentsThatNobodyTakes) {
  on_ranks({.at_least = 2}, [](Context& context) {
    float value = 0;
    const BufferView buffer{.data = &value, .count = 1};
    for (const int partner : {-1, context.rank(), context.size()}) {
      EXPECT_THROW((void)ops::send_nonblocking(context, buffer, partner, 0), InvalidArgument);
      EXPECT_THROW((void)ops::receive_nonblocking(context, buffer, partner, 0), InvalidArgument);
    }
    EXPECT_THROW(
        (void)ops::send_nonblocking(context, {nullptr, 1, Dtype::Float32}, ahead(context), 0),
        InvalidArgument);
  });
}

}  // namespace
}  // namespace bluefog::testing
