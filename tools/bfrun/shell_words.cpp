#include "tools/bfrun/shell_words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "tools/bfrun/options.hpp"

namespace bluefog::bfrun {
namespace {

bool is_escapable_in_quotes(char c) { return c == '"' || c == '\\' || c == '$' || c == '`'; }

bool is_plain(char c) {
  constexpr std::string_view kPlain = "_@%+=:,./-";
  return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
         kPlain.find(c) != std::string_view::npos;
}

std::string quoted(const std::string& word) {
  if (!word.empty() && std::all_of(word.begin(), word.end(), is_plain)) {
    return word;
  }
  std::string result = "'";
  for (const char c : word) {
    result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  }
  return result + "'";
}

}  // namespace

std::vector<std::string> split_shell_words(std::string_view text, const std::string& source) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = '\0';
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && quote != '\'') {
      if (i + 1 == text.size()) {
        throw UsageError(fmt::format("{}: backslash at the end of '{}'", source, text));
      }
      const char next = text[++i];
      if (quote == '"' && !is_escapable_in_quotes(next)) {
        word += c;
      }
      word += next;
      in_word = true;
    } else if (quote != '\0') {
      if (c == quote) {
        quote = '\0';
      } else {
        word += c;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
      in_word = true;
    } else if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      if (in_word) {
        words.push_back(std::move(word));
      }
      word.clear();
      in_word = false;
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quote != '\0') {
    throw UsageError(fmt::format("{}: no closing {} in '{}'", source, quote, text));
  }
  if (in_word) {
    words.push_back(std::move(word));
  }
  return words;
}

std::string join_shell_words(const std::vector<std::string>& words) {
  std::string line;
  for (const auto& word : words) {
    if (!line.empty()) {
      line += ' ';
    }
    line += quoted(word);
  }
  return line;
}

}  // namespace bluefog::bfrun
