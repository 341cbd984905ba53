"""Cuts C++ into comments, strings, words and signs, so that no string is taken for a comment."""

import re

COMMENT = r"/\*(?s:.*?)(?:\*/|\Z)|//[^\n]*"
RAW_STRING = r'(?:u8|[uUL])?R"([^()\\\s]{0,16})\((?s:.*?)\)\1"'
STRING = r'"(?:\\.|[^"\\\n])*"'
CHARACTER = r"'(?:\\.|[^'\\\n])*'"
# An include of a name in <>, in which // begins no comment.
HEADER = r"(?:include_next|include|import)\b(?:[ \t]|/\*(?s:.*?)\*/)*<[^<>\n]*>"
NUMBER = r"\.?\d(?:'?[\w.])*"
PIECE = re.compile(rf"{COMMENT}|{HEADER}|{RAW_STRING}|{STRING}|{CHARACTER}|{NUMBER}"
                   r"|\w+|\n|[ \t]+|.", re.ASCII)
SPLICE = re.compile(r"\\[ \t]*$")


def spliced(text):
    """The text with lines that end with a backslash joined; the next ones keep their numbers."""
    joined, pending = [], 0
    for line in text.splitlines():
        goes_on = SPLICE.search(line)
        joined.append(SPLICE.sub("", line) if goes_on else line + "\n" * (pending + 1))
        pending = pending + 1 if goes_on else 0
    return "".join(joined)


def pieces_of(text):
    """(line number, piece) of each comment, string, word, space, or sign, in their order."""
    number = 1
    for match in PIECE.finditer(spliced(text)):
        yield number, match[0]
        number += match[0].count("\n")


def is_comment(piece):
    return piece.startswith(("//", "/*"))


def lines_of(text):
    """(number, line) of a source as a compiler reads it: one that ends with a backslash goes on,
    and so does one in which a comment of several lines begins; a comment is a blank."""
    line, start = "", 1
    for number, piece in pieces_of(text):
        if piece == "\n":
            yield start, line
            line, start = "", number + 1
        elif is_comment(piece):
            line += " "
        elif piece.endswith(">") and len(piece) > 1:
            word, _, name = piece.rpartition("<")
            line += re.sub(COMMENT, " ", word) + "<" + name
        else:
            line += piece
    yield start, line
