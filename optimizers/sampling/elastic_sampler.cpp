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
#include "optimizers/sampling/common_deal.hpp"
#include "optimizers/sampling/deal.hpp"

namespace bluefog::optimizers {
namespace {

constexpr const char* kDealAnew = "ElasticSampler::deal_anew";

}  // namespace

namespace sampling {

/// The samples of an epoch, by rank.
struct Deal {
  std::int64_t generation = 0;  ///< 0: the first of the epoch; else one more than that of `before`
  std::vector<int> members;     ///< the numbers in the launch of the ranks for which it is
  std::vector<at::Tensor> shares;
  std::int64_t begins = 0;  ///< of its own, drawn by this rank when it was dealt
  std::int64_t drawn = 0;
  bool has_ended = false;  ///< whoever draws knows that there are no more
  std::shared_ptr<Deal> before{};
};

}  // namespace sampling

namespace {

using sampling::CommonDeal;
using sampling::Deal;
using sampling::KnownDeal;
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

std::int64_t take(std::span<const std::int64_t>& rest) {
  const std::int64_t number = rest.front();
  rest = rest.subspan(1);
  return number;
}

/// Numbers, as many as the first says.
template <typename Number>
std::vector<Number> take_several(std::span<const std::int64_t>& rest) {
  const auto taken = rest.first(static_cast<std::size_t>(take(rest)));
  rest = rest.subspan(taken.size());
  return {taken.begin(), taken.end()};
}

void append(std::vector<std::int64_t>& numbers, const KnownDeal& known) {
  numbers.insert(numbers.end(), {known.generation, known.drawn, known.has_ended ? 1 : 0,
                                 std::ssize(known.members)});
  numbers.insert(numbers.end(), known.members.begin(), known.members.end());
}

Standing standing_from(int number, std::span<const std::int64_t> rest) {
  Standing standing{.number = number, .is_new = take(rest) != 0};
  while (!rest.empty()) {
    KnownDeal& known = standing.known.emplace_back();
    known.generation = take(rest);
    known.drawn = take(rest);
    known.has_ended = take(rest) != 0;
    known.members = take_several<int>(rest);
  }
  return standing;
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
  [[nodiscard]] std::int64_t furthest_epoch(Context& context);
  [[nodiscard]] std::vector<Standing> gather_standings(Context& context, std::int64_t epoch);
  [[nodiscard]] std::shared_ptr<Deal> deal_on(Context& context, std::int64_t epoch,
                                              const CommonDeal& common);
  [[nodiscard]] std::shared_ptr<Deal> known_deal(std::int64_t epoch, const CommonDeal& common,
                                                 std::size_t rank);
  [[nodiscard]] std::vector<at::Tensor> shares_of(Context& context, const CommonDeal& common,
                                                  const Deal* deal) const;
  [[nodiscard]] std::vector<at::Tensor> drawn_of_later(Context& context, const CommonDeal& common,
                                                       const Deal* before,
                                                       const Deal* newest) const;
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

std::int64_t ElasticSampler::Deals::furthest_epoch(Context& context) {
  std::int64_t furthest = 0;
  for (const auto& each : gather_numbers(context, {is_new_ ? 0 : epoch_})) {
    furthest = std::max(furthest, each[0]);
  }
  return furthest;
}

std::vector<Standing> ElasticSampler::Deals::gather_standings(Context& context,
                                                              std::int64_t epoch) {
  std::vector<std::int64_t> own{is_new_ ? 1 : 0};
  for (auto deal = is_new_ ? nullptr : deals_[epoch]; deal; deal = deal->before) {
    append(own, {.generation = deal->generation,
                 .members = deal->members,
                 .drawn = deal->drawn,
                 .has_ended = deal->has_ended});
  }
  std::vector<Standing> standings;
  for (const auto& each : gather_numbers(context, own)) {
    standings.push_back(standing_from(context.membership().ranks[standings.size()], each));
  }
  return standings;
}

/// Null where the rank has no part in it.
std::shared_ptr<Deal> ElasticSampler::Deals::known_deal(std::int64_t epoch,
                                                        const CommonDeal& common,
                                                        std::size_t rank) {
  if (!common.has_part[rank]) {
    return nullptr;
  }
  std::shared_ptr<Deal> deal = deals_[epoch];
  while (deal && (deal->generation != common.generation || deal->members != common.members)) {
    deal = deal->before;  // ranks were lost while it was dealt anew
  }
  return deal ? deal
              : std::make_shared<Deal>(Deal{.members = common.members,
                                            .shares = dealing_.first_shares(
                                                epoch, static_cast<int>(common.members.size()))});
}

/// Shares of the deal's members. Collective where a rank lacks it.
std::vector<at::Tensor> ElasticSampler::Deals::shares_of(Context& context, const CommonDeal& common,
                                                         const Deal* deal) const {
  if (std::ranges::find(common.has_part, false) == common.has_part.end()) {
    return deal->shares;
  }
  std::vector<std::int64_t> numbers;
  if (static_cast<std::size_t>(context.rank()) == common.giver) {
    for (const at::Tensor& share : deal->shares) {
      numbers.push_back(share.numel());
      const std::int64_t* const values = share.const_data_ptr<std::int64_t>();
      numbers.insert(numbers.end(), values, values + share.numel());
    }
  }
  const auto parts = gather_numbers(context, numbers);
  std::span<const std::int64_t> rest(parts[common.giver]);
  std::vector<at::Tensor> shares;
  while (!rest.empty()) {
    shares.push_back(tensor_of(take_several<std::int64_t>(rest)));
  }
  return shares;
}

/// Samples that each rank has drawn of a later deal. Collective where some rank has one.
std::vector<at::Tensor> ElasticSampler::Deals::drawn_of_later(Context& context,
                                                              const CommonDeal& common,
                                                              const Deal* before,
                                                              const Deal* newest) const {
  std::vector<at::Tensor> all(static_cast<std::size_t>(context.size()), tensor_of({}));
  if (common.is_newest) {
    return all;
  }
  std::vector<std::int64_t> drawn;
  if (newest != nullptr) {
    const at::Tensor part =
        own(*newest).slice(0, before != nullptr ? before->drawn : newest->begins, newest->drawn);
    const std::int64_t* const first = part.const_data_ptr<std::int64_t>();
    drawn.assign(first, first + part.numel());
  }
  std::size_t rank = 0;
  for (auto& each : gather_numbers(context, drawn)) {
    all[rank++] = tensor_of(std::move(each));
  }
  return all;
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
  const auto rank = static_cast<std::size_t>(context.rank());
  const std::int64_t epoch = furthest_epoch(context);
  const auto common = sampling::common_deal(gather_standings(context, epoch));
  const bool is_taken_in = common ? !common->has_part[rank] : is_new_;
  if (common) {
    deals_[epoch] = deal_on(context, epoch, *common);
  }
  members_ = context.membership().ranks;
  number_ = members_[rank];
  epoch_ = is_taken_in ? epoch : epoch_;
  is_new_ = false;
}

std::shared_ptr<Deal> ElasticSampler::Deals::deal_on(Context& context, std::int64_t epoch,
                                                     const CommonDeal& common) {
  const auto rank = static_cast<std::size_t>(context.rank());
  const std::shared_ptr<Deal> newest = is_new_ ? nullptr : deals_[epoch];
  const std::shared_ptr<Deal> before = known_deal(epoch, common, rank);
  const std::vector<at::Tensor> dealt = shares_of(context, common, before.get());
  auto [shares, drawn] =
      sampling::draws_of(common, context.membership().ranks, dealt,
                         drawn_of_later(context, common, before.get(), newest.get()));
  if (common.has_ended) {
    say_what_is_missed(context, epoch, shares);
  } else {
    shares = dealing_.later_shares(epoch, shares, drawn);
  }
  if (before) {
    before->before = nullptr;  // everybody has this one
  }
  return std::make_shared<Deal>(Deal{.generation = common.generation + 1,
                                     .members = context.membership().ranks,
                                     .shares = std::move(shares),
                                     .begins = drawn[rank],
                                     .drawn = drawn[rank],
                                     .has_ended = newest && newest->has_ended,
                                     .before = before});
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
