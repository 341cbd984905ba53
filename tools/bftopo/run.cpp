#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <fstream>
#include <string>
#include <system_error>

#include "tools/bftopo/busy_line.hpp"
#include "tools/bftopo/commands.hpp"
#include "tools/command_line/standard_output.hpp"

namespace bluefog::bftopo {
namespace {

Answer answer_of(const Options& options) {
  if (options.command == Command::List) {
    return {list_text(options)};
  }
  BusyLine busy(stderr);
  busy.say(options.family ? "making the graph" : "reading " + options.subject);
  const Subject subject = make_subject(options);
  if (options.command == Command::Simulate) {
    busy.end();  // it has a bar of its own
  } else {
    busy.say(fmt::format("looking at {} ranks", subject.schedule().size()));
  }
  switch (options.command) {
    case Command::Show:
      return {show_text(options, subject)};
    case Command::Check:
      return check_answer(options, subject);
    case Command::Gap:
      return {gap_text(options, subject)};
    case Command::Simulate:
      return {simulate_text(options, subject, stderr)};
    case Command::Draw:
      return {draw_text(options, subject)};
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
    command_line::print(options.help_text);
    return 0;
  }
  const Answer answer = answer_of(options);
  if (options.output.empty()) {
    command_line::print(answer.text);
  } else {
    write_file(options.output, answer.text);
  }
  return answer.exit_code;
}

}  // namespace bluefog::bftopo
