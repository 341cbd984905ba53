#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bluefog_cpp/context.hpp"
#include "bluefog_cpp/work.hpp"
#include "ops/compression.hpp"
#include "optimizers/bucket.hpp"

namespace bluefog::optimizers {

/// The mean over all ranks of codes of a bucket's vectors v, with error feedback: what a rank's code
/// leaves out, e, comes with its next one. With C the code and β the decay:
///
///     y = β e + v;   q = C(y);   e ← y − q;   v ← (1/n) Σⱼ qⱼ
///
/// so that q + e' = y on each rank, however rough C is. The mean has the same bits on all ranks.
/// Nothing changes before `finish`: a round that fails leaves v and e as they were.
///
/// The error e stays as it was where a rank's q is not finite: there is no mean then, and what a
/// code has left would be lost with it.
///
/// Cost per rank and vector: one all-gather of codes, n − 1 messages of the code's length; memory for
/// the codes of all ranks, and for e a copy of v.
/// Source: arXiv 1809.07599 (error feedback), 1901.09847.
class CodedMean {
 public:
  /// Memory that vectors share which are coded one after the other.
  struct Scratch {
    std::vector<float> values;
    std::vector<double> sum;
  };

  /// @param context, bucket outlive this object. @param values of the bucket's layout: v.
  /// @param name equal on all ranks. @param decay β; none: e is dropped.
  /// @param note_bytes go along with each code.
  CodedMean(Context& context, const Bucket& bucket, at::Tensor values, std::string name,
            std::shared_ptr<const ops::Compression> compression, std::optional<double> decay,
            std::size_t note_bytes);

  /// What becomes of e.
  enum class Left : std::uint8_t {
    Follows,  ///< y − q
    Stays,    ///< as it was, whatever the mean is: it is not to be used
  };

  /// Makes the code. @return whether y is finite.
  bool encode(std::span<const std::byte> note, Scratch& scratch);
  /// The note that goes along, to be written between `encode` and `send`.
  [[nodiscard]] std::span<std::byte> own_note();
  /// Sends it to all ranks.
  [[nodiscard]] Work send();
  /// The note that came along with a rank's code. After `send`'s work.
  [[nodiscard]] std::span<const std::byte> note_of(int rank) const;
  /// Decodes all codes, for errors alone. After `send`'s work.
  void try_decoding(Scratch& scratch) const;
  /// v and e become what they are afterwards. After `send`'s work.
  /// @param takes_part by segment, the same on all ranks: 0 leaves v and e of a parameter. Empty: all.
  void finish(Scratch& scratch, std::span<const std::uint8_t> takes_part = {},
              Left left = Left::Follows);
  /// Leaves codes to calls that go on after a round has failed.
  void forget() { codes_ = nullptr; }
  /// e; undefined without a decay.
  [[nodiscard]] const at::Tensor& left() const noexcept { return left_; }

 private:
  [[nodiscard]] std::size_t message_bytes() const { return note_bytes_ + code_bytes_; }
  [[nodiscard]] std::span<std::byte> own_message();
  [[nodiscard]] std::span<const std::byte> code_of(int rank) const;

  Context& context_;
  const Bucket& bucket_;
  at::Tensor values_;
  std::string name_;
  std::shared_ptr<const ops::Compression> compression_;
  double decay_;
  std::size_t note_bytes_;
  std::size_t code_bytes_;
  at::Tensor left_;
  /// Messages of all ranks, by rank.
  std::shared_ptr<std::vector<std::byte>> codes_;
};

}  // namespace bluefog::optimizers
