#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

namespace bluefog::tcp {

/// Half of it proves the caller, the other half the one who answers. Each network has its own.
struct Secret {
  std::array<std::uint8_t, 16> caller{};
  std::array<std::uint8_t, 16> answerer{};

  /// From the system's source of randomness. @throws TransportError.
  [[nodiscard]] static Secret make();
};

/// The version of this library, and of the frames.
[[nodiscard]] std::string library_version();

/// The first bytes of a connection, from the rank that made it. Ranks of another byte order differ
/// in `magic`.
struct Greeting {
  static constexpr std::uint64_t kMagic = 0x6275'7466'6f67'0001U;

  std::uint64_t magic = kMagic;
  std::array<std::uint8_t, 16> secret{};
  std::int32_t rank = -1;
  std::uint32_t channel = 0;
  /// Zero-terminated.
  std::array<char, 32> version{};

  [[nodiscard]] static Greeting make(const Secret& secret, int rank, std::size_t channel);
};
static_assert(sizeof(Greeting) == 64 && std::is_trivially_copyable_v<Greeting>);

/// The other rank's reply, given where the greeting shows the secret.
struct Answer {
  enum class Verdict : std::uint32_t {
    Welcome = 1,
    /// Both ranks have called each other; the connection of the lower rank is the one that stays.
    Crossed = 2,
    /// The versions differ.
    Version = 3,
    /// No descriptor is left for the connection.
    Full = 4,
  };

  std::uint64_t magic = Greeting::kMagic;
  std::array<std::uint8_t, 16> secret{};
  Verdict verdict = Verdict::Welcome;
  /// Full: how many its process may have; 0 where all processes together have too many.
  std::uint32_t descriptors = 0;
  /// Zero-terminated.
  std::array<char, 32> version{};

  [[nodiscard]] static Answer make(const Secret& secret, Verdict verdict);
};
static_assert(sizeof(Answer) == 64 && std::is_trivially_copyable_v<Answer>);

/// Whether the greeting comes from a rank of this network, of any version.
[[nodiscard]] bool is_of_network(const Greeting& greeting, const Secret& secret, int size);
/// Whether the answer comes from one.
[[nodiscard]] bool is_of_network(const Answer& answer, const Secret& secret);

/// The version, as text to print.
[[nodiscard]] std::string version_in(const std::array<char, 32>& version);

}  // namespace bluefog::tcp
