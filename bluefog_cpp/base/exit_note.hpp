#pragma once

#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

namespace bluefog {

/// The exit code that a failing rank leaves for bfrun before it waits for the others in
/// MPI_Finalize: they, and the job with them, may end before its process does.
struct ExitNote {
  std::int64_t exited_at_us = 0;  ///< microseconds since 1970 by the clock of its host
  std::int64_t code = 0;          ///< 0 while it is not known
  /// When it began to leave, by the same clock; 0: unknown. The package in Python writes this one,
  /// because its interpreter takes its time between leaving the others and the exit.
  std::int64_t leaving_at_us = 0;
};

/// The environment variable that names the place of the note: the memory's descriptor and inode,
/// and the process to signal.
inline constexpr const char* kExitNoteVariable = "BFRUN_EXIT_NOTE";

/// The signal that says that there is a note.
[[nodiscard]] inline int exit_note_signal() noexcept { return SIGRTMIN + 1; }

/// The signal that says that the rank has begun to join the others.
[[nodiscard]] inline int joining_signal() noexcept { return SIGRTMIN + 2; }

/// The signal that says that the rank has left the others, who go on, before the end of their work.
[[nodiscard]] inline int departure_signal() noexcept { return SIGRTMIN + 6; }

/// Memory for a note: a descriptor that is closed by exec, or −1.
[[nodiscard]] inline int make_exit_note() noexcept {
  const int descriptor = ::memfd_create("bfrun-exit-note", MFD_CLOEXEC);
  if (descriptor >= 0 && ::ftruncate(descriptor, sizeof(ExitNote)) != 0) {
    ::close(descriptor);
    return -1;
  }
  return descriptor;
}

/// The value of `kExitNoteVariable` for `descriptor` and for `reader`, the process to signal; empty
/// where the descriptor is not open.
[[nodiscard]] inline std::string exit_note_place(int descriptor, pid_t reader) {
  struct stat state {};
  return ::fstat(descriptor, &state) == 0
             ? fmt::format("{}:{}:{}", descriptor, state.st_ino, reader)
             : std::string();
}

/// The memory for a note of this process, and the process that reads it.
struct ExitNotePlace {
  int descriptor = -1;
  pid_t reader = -1;
};

/// The place that the environment names; nothing where it names none, or the descriptor has become
/// another file's.
[[nodiscard]] inline std::optional<ExitNotePlace> find_exit_note() {
  const char* const text = std::getenv(kExitNoteVariable);
  ExitNotePlace place;
  const bool is_found = text != nullptr &&
                        std::sscanf(text, "%d:%*[0-9]:%d", &place.descriptor, &place.reader) == 2 &&
                        exit_note_place(place.descriptor, place.reader) == text;
  return is_found ? std::optional(place) : std::nullopt;
}

/// Reports to the reader that this rank has begun to join the others, where there is one.
inline void report_joining() {
  if (const auto place = find_exit_note()) {
    ::kill(place->reader, joining_signal());
  }
}

/// Reports to the reader that this rank has left the others, where there is one.
inline void report_departure() {
  if (const auto place = find_exit_note()) {
    ::kill(place->reader, departure_signal());
  }
}

/// Leaves a note at the place that the environment names, unless `code` is 0.
inline void leave_exit_note(int code) {
  const auto place = find_exit_note();
  if (!place || code == 0) {
    return;
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const ExitNote note{
      .exited_at_us = std::chrono::duration_cast<std::chrono::microseconds>(now).count(),
      .code = code & 0xff};
  constexpr ssize_t kBytes = offsetof(ExitNote, leaving_at_us);
  if (::pwrite(place->descriptor, &note, kBytes, 0) == kBytes) {
    ::kill(place->reader, exit_note_signal());
  }
}

/// The note in `descriptor`, if there is one.
[[nodiscard]] inline std::optional<ExitNote> read_exit_note(int descriptor) noexcept {
  ExitNote note;
  const bool is_read = descriptor >= 0 && ::pread(descriptor, &note, sizeof note, 0) == sizeof note;
  return is_read && (note.code != 0 || note.leaving_at_us != 0) ? std::optional(note)
                                                                : std::nullopt;
}

}  // namespace bluefog
