#pragma once

#include <stdexcept>
#include <string>

namespace bluefog {

/// Root of every exception that this library throws.
///
/// A message says what was expected, what was found, on which rank and in
/// which operation.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// An argument that the caller can correct: found before any byte moved.
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

/// A call that is not possible in the object's present state (closed context,
/// topology not set, work already consumed).
class StateError : public Error {
 public:
  using Error::Error;
};

/// A combination that this build or machine does not support.
class UnsupportedError : public Error {
 public:
  using Error::Error;
};

/// Ranks called different operations, or the same one with other sizes, data
/// types, names or plans. The message names both calls. The context stays
/// usable.
class MismatchError : public InvalidArgument {
 public:
  using InvalidArgument::InvalidArgument;
};

/// A `MismatchError` of an earlier call, which had ended on this rank before it heard of the
/// mismatch. The message names both calls.
class LateMismatchError : public MismatchError {
 public:
  using MismatchError::MismatchError;
};

/// A wait reached its deadline (`BLUEFOG_TIMEOUT`).
class TimeoutError : public Error {
 public:
  using Error::Error;
};

/// A peer refused the call, left, or died.
class PeerFailure : public Error {
 public:
  /// The failure of `rank`, with the message of `what()`.
  PeerFailure(int rank, const std::string& message) : Error(message), rank_(rank) {}

  /// The rank that failed.
  [[nodiscard]] int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

/// The ranks of a context go on without one that is lost, so that this context's calls end:
/// `Context::shrink` makes a smaller one. `rank()` is the lost one, by its number in this context.
class RankLostError : public PeerFailure {
 public:
  using PeerFailure::PeerFailure;
};

/// A call to a window of a rank that has freed or destroyed its part: that rank has finished, and
/// has not failed.
class WindowGoneError : public StateError {
 public:
  /// The error of a call that concerned `rank`, with the message of `what()`.
  WindowGoneError(int rank, const std::string& message) : StateError(message), rank_(rank) {}

  /// The rank whose part of the window is gone.
  [[nodiscard]] int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

/// The earlier name of `WindowGoneError`, for one release.
using WindowGone [[deprecated("use WindowGoneError")]] = WindowGoneError;

/// A call to a window of a rank that has closed its context, whatever became of the window before.
class PeerHasLeft : public PeerFailure {
 public:
  using PeerFailure::PeerFailure;
};

/// A system call, shared mapping or message transfer failed.
class TransportError : public Error {
 public:
  using Error::Error;
};

/// A call of another library returned an error; `code()` is that library's own.
class CodedError : public TransportError {
 public:
  /// The error `code` of the other library, with the message of `what()`.
  CodedError(int code, const std::string& message) : TransportError(message), code_(code) {}

  /// MPI's error code, a `CUresult` or an `ncclResult_t`, by the class of the error.
  [[nodiscard]] int code() const noexcept { return code_; }

 private:
  int code_;
};

/// An error of MPI.
class MpiError : public CodedError {
 public:
  using CodedError::CodedError;
};

/// An error of CUDA's driver.
class CudaError : public CodedError {
 public:
  using CodedError::CodedError;
};

/// An error of NCCL; with code 0 one that this library found in NCCL's use.
class NcclError : public CodedError {
 public:
  using CodedError::CodedError;
};

/// A broken invariant of this library: a defect, please report it.
class InternalError : public Error {
 public:
  using Error::Error;
};

}  // namespace bluefog
