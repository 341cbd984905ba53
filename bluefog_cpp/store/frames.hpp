#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "bluefog_cpp/store.hpp"

namespace bluefog::store {

/// The language of the store over TCP: a greeting, then requests and an answer to each, in their
/// order. Numbers are of the host's byte order: all speak with one launcher.

inline constexpr std::uint64_t kMark = 0x31'45'52'4f'54'53'46'42;  // "BFSTORE1"
inline constexpr std::size_t kSecretBytes = 64;

/// The client's first words. Who does not know the secret gets no answer.
struct Greeting {
  std::uint64_t mark = kMark;
  std::array<char, kSecretBytes> secret{};
};

/// The server's answer to it.
struct Welcome {
  std::uint64_t mark = kMark;
};

/// The mark of a server that has no room for another client; the length of the reason (64 bits) and
/// its text follow.
inline constexpr std::uint64_t kFullMark = 0x46'45'52'4f'54'53'46'42;  // "BFSTOREF"
inline constexpr std::size_t kMostReasonBytes = 1024;

enum class Action : std::uint32_t { Set = 1, Get, Add, Remove };

/// The head of a request; key and value follow.
struct Request {
  Action action = Action::Get;
  std::uint32_t key_bytes = 0;
  std::uint64_t value_bytes = 0;
  std::int64_t amount = 0;   ///< of Add
  std::int64_t wait_us = 0;  ///< of Get: how long to wait for a value
};

enum class Verdict : std::uint32_t { Done = 1, NotThere, Full };

/// The head of an answer; the value follows.
struct Answer {
  Verdict verdict = Verdict::Done;
  std::uint32_t unused = 0;
  std::int64_t number = 0;
  std::uint64_t value_bytes = 0;
};

/// The most that a server keeps.
inline constexpr std::size_t kMostBytes = std::size_t{2} << 30;

[[nodiscard]] inline std::array<char, kSecretBytes> padded(const std::string& secret) {
  std::array<char, kSecretBytes> bytes{};
  secret.copy(bytes.data(), bytes.size());
  return bytes;
}

}  // namespace bluefog::store
