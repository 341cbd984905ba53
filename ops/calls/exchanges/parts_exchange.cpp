#include "ops/calls/exchanges/parts_exchange.hpp"

#include <utility>

#include "bluefog_cpp/base/copy.hpp"

namespace bluefog::ops {

PartsExchange::PartsExchange(OpKind kind, Dtype dtype, std::string name, SentParts sent,
                             TakenParts taken)
    : name_(std::move(name)),
      // Sizes may differ between ranks; those of two of them are compared by their messages.
      envelope_(Envelope::make(kind, dtype, -1, name_)),
      sent_(std::move(sent)),
      taken_(std::move(taken)) {
  for (const SentPart& part : sent_) {
    outgoing_.push_back({.data = part.data, .bytes = part.bytes, .readers = part.readers});
  }
  for (const TakenPart& part : taken_) {
    incoming_.push_back({.source = {.rank = part.source}, .bytes = part.bytes});
  }
}

bool PartsExchange::next(ExchangeSpec& spec) {
  spec.envelope = envelope_;
  spec.pace = Pace::Each;
  spec.outgoing = {outgoing_.data(), outgoing_.size()};
  spec.incoming = {incoming_.data(), incoming_.size()};
  return true;
}

void PartsExchange::receive(std::size_t offset, std::size_t bytes, std::span<const Piece> pieces) {
  copy_bytes(taken_[pieces[0].source_index].place + offset, pieces[0].data, bytes);
}

}  // namespace bluefog::ops
