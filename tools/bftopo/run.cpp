#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>
#include <system_error>

#include "tools/bftopo/commands.hpp"

namespace bluefog::bftopo {
namespace {

std::string text_of(const Options& options) {
  if (options.command == Command::List) return list_text(options);
  const Subject subject = make_subject(options);
  switch (options.command) {
    case Command::Show:
      return show_text(options, subject);
    case Command::Check:
      return check_text(options, subject);
    case Command::Gap:
      return gap_text(options, subject);
    case Command::Simulate:
      return simulate_text(options, subject, stderr);
    case Command::Draw:
      return draw_text(options, subject);
    case Command::List:
      break;
  }
  throw InternalError("bftopo: unknown command");
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text << std::flush;
  if (!file) {
    throw Error(fmt::format("cannot write {}: {}", path, std::generic_category().message(errno)));
  }
}

}  // namespace

int run(const std::vector<std::string>& arguments) {
  const Options options = parse_options(arguments);
  if (!options.help_text.empty()) {
    fmt::print("{}", options.help_text);
    return 0;
  }
  const std::string text = text_of(options);
  if (options.output.empty()) {
    fmt::print("{}", text);
  } else {
    write_file(options.output, text);
  }
  return 0;
}

}  // namespace bluefog::bftopo
