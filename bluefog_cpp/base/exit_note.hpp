#pragma once

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

namespace bluefog {

/// What a rank that exits with another code than 0 leaves for bfrun, before it waits for the others
/// in MPI_Finalize: they may end, and the job with them, before its process does.
struct ExitNote {
  std::int64_t exited_at_us = 0;  ///< microseconds since 1970 by the clock of its host
  std::int64_t code = 0;
};

/// The variable that tells where the note goes: the memory's descriptor and inode, and the process
/// that is told of it.
inline constexpr const char* kExitNoteVariable = "BFRUN_EXIT_NOTE";

/// What that process gets when there is a note.
[[nodiscard]] inline int exit_note_signal() noexcept { return SIGRTMIN + 1; }

/// Memory for a note: a descriptor that is closed by exec, or −1.
[[nodiscard]] inline int make_exit_note() noexcept {
  return ::memfd_create("bfrun-exit-note", MFD_CLOEXEC);
}

/// What `kExitNoteVariable` says of `descriptor` and of `reader`, the process to tell; empty where
/// the descriptor is none.
[[nodiscard]] inline std::string exit_note_place(int descriptor, pid_t reader) {
  struct stat state {};
  return ::fstat(descriptor, &state) == 0
             ? fmt::format("{}:{}:{}", descriptor, state.st_ino, reader)
             : std::string();
}

/// Leaves a note at the place that the environment names; nothing where it names none, the
/// descriptor has become another file's, or `code` is 0.
inline void leave_exit_note(int code) {
  const char* const place = std::getenv(kExitNoteVariable);
  int descriptor = -1;
  pid_t reader = -1;
  if (place == nullptr || code == 0 ||
      std::sscanf(place, "%d:%*[0-9]:%d", &descriptor, &reader) != 2 ||
      exit_note_place(descriptor, reader) != place) {
    return;
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const ExitNote note{
      .exited_at_us = std::chrono::duration_cast<std::chrono::microseconds>(now).count(),
      .code = code & 0xff};
  if (::pwrite(descriptor, &note, sizeof note, 0) == sizeof note) {
    ::kill(reader, exit_note_signal());
  }
}

/// The note in `descriptor`, if there is one.
[[nodiscard]] inline std::optional<ExitNote> read_exit_note(int descriptor) noexcept {
  ExitNote note;
  if (descriptor < 0 || ::pread(descriptor, &note, sizeof note, 0) != sizeof note) {
    return std::nullopt;
  }
  return note;
}

}  // namespace bluefog
