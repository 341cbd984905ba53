#include "optimizers/elastic_sampler.hpp"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "bluefog_cpp/error.hpp"
#include "ops/calls/allgather_parts.hpp"
#include "optimizers/sampling/deal.hpp"

namespace bluefog::optimizers {
namespace {

constexpr const char* kDealAnew = "ElasticSampler::deal_anew";

}  // namespace

namespace sampling {

/// The samples of an epoch, by rank.
struct Deal {
  std::vector<int> members;  ///< the numbers in the launch of the ranks for which it is
  std::vector<at::Tensor> shares;
  std::int64_t drawn = 0;  ///< of its own, by this rank
  bool has_ended = false;  ///< whoever draws knows that there are no more
  std::shared_ptr<Deal> before{};
};

/// The part of a rank in the epoch that the furthest is in.
struct Standing {
  std::int64_t epoch = 0;
  bool is_new = false;
  std::int64_t drawn = 0;
  bool has_ended = false;
  std::vector<int> members{};  ///< of its deal; none: it has none of that epoch
};

}  // namespace sampling

namespace {

using sampling::Deal;
using sampling::Standing;

std::string bytes_of_numbers(std::span<const std::int64_t> numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes()};
}

std::vector<std::int64_t> numbers_of(const std::string& text) {
  std::vector<std::int64_t> numbers(text.size() / sizeof(std::int64_t));
  std::memcpy(numbers.data(), text.data(), numbers.size() * sizeof(std::int64_t));
  return numbers;
}

/// Collective: the numbers of each rank.
std::vector<std::vector<std::int64_t>> gather_numbers(Context& context,
                                                      const std::vector<std::int64_t>& own) {
  std::vector<std::vector<std::int64_t>> all;
  for (const std::string& part : ops::allgather_parts(context, kDealAnew, bytes_of_numbers(own))) {
    all.push_back(numbers_of(part));
  }
  return all;
}

Standing standing_from(const std::vector<std::int64_t>& numbers) {
  return {.epoch = numbers[0],
          .is_new = numbers[1] != 0,
          .drawn = numbers[2],
          .has_ended = numbers[3] != 0,
          .members = {numbers.begin() + 4, numbers.end()}};
}

at::Tensor tensor_of(std::vector<std::int64_t> numbers) {
  return at::from_blob(numbers.data(), {std::ssize(numbers)}, at::kLong).clone();
}

}  // namespace

class ElasticSampler::Deals {
 public:
  Deals(const Dealing& dealing, const Context& context)
      : dealing_(dealing),
        members_(context.membership().ranks),
        number_(members_[static_cast<std::size_t>(context.rank())]),
        is_new_(context.is_applicant()) {}

  [[nodiscard]] std::int64_t epoch() const noexcept { return epoch_; }
  void begin(std::int64_t epoch) {
    if (epoch < epoch_) {
      throw InvalidArgument(fmt::format(
          "ElasticSampler::begin: expected epoch {} or a later one, found {}", epoch_, epoch));
    }
    epoch_ = epoch;
    std::erase_if(deals_, [epoch](const auto& entry) { return entry.first < epoch; });
  }
  [[nodiscard]] Deal& now() {
    auto& deal = deals_[epoch_];
    if (!deal) {
      deal = std::make_shared<Deal>(
          Deal{.members = members_,
               .shares = dealing_.first_shares(epoch_, static_cast<int>(members_.size()))});
    }
    return *deal;
  }
  [[nodiscard]] const at::Tensor& own(const Deal& deal) const {
    const auto at = std::ranges::find(deal.members, number_) - deal.members.begin();
    return deal.shares[static_cast<std::size_t>(at)];
  }
  [[nodiscard]] std::vector<std::int64_t> next(std::int64_t most);
  void deal_anew(Context& context);

 private:
  [[nodiscard]] std::vector<Standing> gather_standings(Context& context);
  void deal_epoch(Context& context, std::int64_t epoch, const std::vector<int>& members,
                  const std::vector<Standing>& standings);
  [[nodiscard]] std::shared_ptr<Deal> common_deal(std::int64_t epoch,
                                                  const std::vector<int>& members);
  [[nodiscard]] std::shared_ptr<Deal> deal_of_rank_0(Context& context, std::shared_ptr<Deal> own,
                                                     bool is_new) const;
  void say_what_is_missed(Context& context, std::int64_t epoch,
                          const std::vector<at::Tensor>& shares) const;

  Dealing dealing_;
  std::vector<int> members_;  ///< of the context
  int number_;                ///< this rank's, in the launch
  bool is_new_;               ///< it has nothing of what the others have dealt
  std::int64_t epoch_ = 0;
  std::map<std::int64_t, std::shared_ptr<Deal>> deals_;
};

std::vector<std::int64_t> ElasticSampler::Deals::next(std::int64_t most) {
  if (most < 1) {
    throw InvalidArgument(
        fmt::format("ElasticSampler::next: expected at least 1 sample, found {}", most));
  }
  Deal& deal = now();
  const at::Tensor& share = own(deal);
  const std::int64_t count = std::min(most, share.numel() - deal.drawn);
  deal.has_ended = count == 0;
  const std::int64_t* const first = share.const_data_ptr<std::int64_t>() + deal.drawn;
  deal.drawn += count;
  return {first, first + count};
}

std::vector<Standing> ElasticSampler::Deals::gather_standings(Context& context) {
  std::int64_t furthest = 0;
  for (const auto& each : gather_numbers(context, {is_new_ ? 0 : epoch_})) {
    furthest = std::max(furthest, each[0]);
  }
  std::vector<std::int64_t> own{furthest, is_new_ ? 1 : 0, 0, 0};
  if (const auto found = deals_.find(furthest); found != deals_.end() && !is_new_) {
    const Deal& deal = *found->second;
    own = {furthest, 0, deal.drawn, deal.has_ended ? 1 : 0};
    own.insert(own.end(), deal.members.begin(), deal.members.end());
  }
  std::vector<Standing> standings;
  for (const auto& each : gather_numbers(context, own)) {
    standings.push_back(standing_from(each));
  }
  return standings;
}

std::shared_ptr<Deal> ElasticSampler::Deals::common_deal(std::int64_t epoch,
                                                         const std::vector<int>& members) {
  std::shared_ptr<Deal> deal = deals_[epoch];
  while (deal && deal->members != members) {
    deal = deal->before;  // ranks were lost while it was dealt anew
  }
  return deal ? deal
              : std::make_shared<Deal>(
                    Deal{.members = members,
                         .shares = dealing_.first_shares(epoch, static_cast<int>(members.size()))});
}

std::shared_ptr<Deal> ElasticSampler::Deals::deal_of_rank_0(Context& context,
                                                            std::shared_ptr<Deal> own,
                                                            bool is_new) const {
  std::vector<std::int64_t> numbers;
  if (context.rank() == 0) {
    numbers.push_back(std::ssize(own->members));
    numbers.insert(numbers.end(), own->members.begin(), own->members.end());
    for (const at::Tensor& share : own->shares) {
      numbers.push_back(share.numel());
      const std::int64_t* const values = share.const_data_ptr<std::int64_t>();
      numbers.insert(numbers.end(), values, values + share.numel());
    }
  }
  const auto parts = gather_numbers(context, numbers);
  if (!is_new) {
    return own;
  }
  std::span<const std::int64_t> rest(parts.front());
  const auto take = [&rest](std::int64_t count) {
    const auto taken = rest.first(static_cast<std::size_t>(count));
    rest = rest.subspan(taken.size());
    return std::vector<std::int64_t>(taken.begin(), taken.end());
  };
  auto deal = std::make_shared<Deal>();
  const auto members = take(take(1).front());
  deal->members.assign(members.begin(), members.end());
  while (!rest.empty()) {
    deal->shares.push_back(tensor_of(take(take(1).front())));
  }
  return deal;
}

void ElasticSampler::Deals::say_what_is_missed(Context& context, std::int64_t epoch,
                                               const std::vector<at::Tensor>& shares) const {
  const std::int64_t missed = dealing_.missed_by(shares);
  if (missed > 0 && context.rank() == 0) {
    context.log().warning(fmt::format(
        "ElasticSampler: up to {} samples of epoch {} are missed: those of ranks that were lost when "
        "others had drawn all of their own",
        missed, epoch));
  }
}

void ElasticSampler::Deals::deal_anew(Context& context) {
  const std::vector<int>& ranks = context.membership().ranks;
  const auto rank = static_cast<std::size_t>(context.rank());
  const std::vector<Standing> standings = gather_standings(context);
  const std::int64_t epoch = standings.front().epoch;
  const auto first_to_have_begun = std::ranges::max_element(
      standings, {}, [](const Standing& standing) { return standing.members.size(); });
  if (!first_to_have_begun->members.empty()) {
    deal_epoch(context, epoch, first_to_have_begun->members, standings);
  }
  members_ = ranks;
  number_ = ranks[rank];
  epoch_ = is_new_ ? epoch : epoch_;
  is_new_ = false;
}

void ElasticSampler::Deals::deal_epoch(Context& context, std::int64_t epoch,
                                       const std::vector<int>& members,
                                       const std::vector<Standing>& standings) {
  const std::vector<int>& ranks = context.membership().ranks;
  const auto rank = static_cast<std::size_t>(context.rank());
  std::shared_ptr<Deal> before = is_new_ ? nullptr : common_deal(epoch, members);
  if (standings.back().is_new) {
    before = deal_of_rank_0(context, before, is_new_);
  }
  std::vector<at::Tensor> shares;
  std::vector<std::int64_t> drawn;
  for (std::size_t i = 0; i < standings.size(); ++i) {
    const std::size_t like = standings[i].is_new ? 0 : i;  // it has what the first has
    const auto at = std::ranges::find(before->members, ranks[like]) - before->members.begin();
    shares.push_back(before->shares[static_cast<std::size_t>(at)]);
    drawn.push_back(standings[like].drawn);
  }
  if (std::ranges::any_of(standings, &Standing::has_ended)) {
    say_what_is_missed(context, epoch, shares);
  } else {
    shares = dealing_.later_shares(epoch, shares, drawn);
  }
  deals_[epoch] = std::make_shared<Deal>(Deal{.members = ranks,
                                              .shares = std::move(shares),
                                              .drawn = drawn[rank],
                                              .has_ended = standings[rank].has_ended,
                                              .before = std::move(before)});
}

ElasticSampler::ElasticSampler(std::int64_t count, const Context& context,
                               const ElasticSamplerOptions& options) {
  if (count < 1) {
    throw InvalidArgument(
        fmt::format("ElasticSampler: expected at least 1 sample, found {}", count));
  }
  deals_ = std::make_unique<Deals>(
      Dealing{.count = count, .shuffles = options.shuffles, .seed = options.seed}, context);
}

ElasticSampler::ElasticSampler(ElasticSampler&&) noexcept = default;
ElasticSampler& ElasticSampler::operator=(ElasticSampler&&) noexcept = default;
ElasticSampler::~ElasticSampler() = default;

std::int64_t ElasticSampler::epoch() const noexcept { return deals_->epoch(); }
void ElasticSampler::begin(std::int64_t epoch) { deals_->begin(epoch); }
std::vector<std::int64_t> ElasticSampler::next(std::int64_t most) { return deals_->next(most); }
std::int64_t ElasticSampler::size() const { return deals_->own(deals_->now()).numel(); }
std::int64_t ElasticSampler::drawn() const { return deals_->now().drawn; }
void ElasticSampler::deal_anew(Context& context) { deals_->deal_anew(context); }

}  // namespace bluefog::optimizers
