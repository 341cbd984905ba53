#include "tools/bfrun/job/process.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace bluefog::bfrun {

std::vector<std::string> split_search_path(std::string_view search_path) {
  std::vector<std::string> folders;
  std::size_t begin = 0;
  while (begin <= search_path.size() && !search_path.empty()) {
    const std::size_t end = std::min(search_path.find(':', begin), search_path.size());
    folders.emplace_back(end == begin ? "." : search_path.substr(begin, end - begin));
    begin = end + 1;
  }
  return folders;
}

bool is_program(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

std::string own_path() {
  std::array<char, 4096> path{};
  const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
  return length <= 0 ? std::string() : std::string(path.data(), static_cast<std::size_t>(length));
}

std::string own_folder() {
  const std::string path = own_path();
  return path.substr(0, std::min(path.rfind('/'), path.size()));
}

std::string host_name() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') {
    return "localhost";
  }
  return name.data();
}

int check_program(const std::string& command, std::string_view search_path) {
  std::vector<std::string> candidates;
  if (command.find('/') != std::string::npos) {
    candidates.push_back(command);
  } else if (!command.empty()) {
    for (const auto& folder : split_search_path(search_path)) {
      candidates.push_back(folder + "/" + command);
    }
  }
  bool exists = false;
  for (const auto& candidate : candidates) {
    if (is_program(candidate)) {
      return 0;
    }
    exists = exists || access(candidate.c_str(), F_OK) == 0;
  }
  return exists ? kNotExecutableCode : kNotFoundCode;
}

std::string find_program(const std::string& command, std::string_view search_path) {
  if (command.find('/') == std::string::npos) {
    for (const auto& folder : split_search_path(search_path)) {
      if (is_program(folder + "/" + command)) {
        return folder + "/" + command;
      }
    }
  }
  return command;
}

ExitStatus ExitStatus::from_wait(int status) {
  if (WIFSIGNALED(status)) {
    return {0, WTERMSIG(status)};
  }
  return {WEXITSTATUS(status), 0};
}

std::vector<char*> to_pointers(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  // exec leaves the strings alone; only its old signature says otherwise.
  for (const auto& word : words) {
    pointers.push_back(const_cast<char*>(word.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

void open_missing_streams() {
  int lowest = 0;
  do {
    lowest = open("/dev/null", O_RDWR);
  } while (lowest >= 0 && lowest <= STDERR_FILENO);
  if (lowest >= 0) {
    close(lowest);
  }
}

bool stdin_is_null() {
  struct stat input {};
  struct stat null {};
  return fstat(STDIN_FILENO, &input) == 0 && stat("/dev/null", &null) == 0 &&
         S_ISCHR(input.st_mode) && input.st_rdev == null.st_rdev;
}

void say(const std::string& line) { write_to_stderr("bfrun: " + line + "\n"); }

bool write_to_stderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(STDERR_FILENO, text.data(), text.size());
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return false;
    }
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace bluefog::bfrun
