"""Counts the comments, behind code too, and Python's docstrings, that begin a sentence with a
dangling word, one that hides its subject:
"What windows stand on." in place of "The memory, server and thread that windows use."
A remark in lower case behind code is no sentence: its subject is the code on its left.

    comments.py ROOT             the share of each folder; fails where a folder's is above the limit
    comments.py --list ROOT [FOLDER…]   every such comment with its place
    comments.py --self-test      check that they are found
"""

import ast
import collections
import io
import pathlib
import re
import sys
import tokenize

from cpp_pieces import is_comment, pieces_of

LIMIT = 0.03
FOLDERS = ("bluefog_cpp", "topology", "ops", "optimizers", "nn", "pipeline", "python", "tools",
           "examples", "benchmarks", "cmake", "tests")
CPP, PYTHON = (".hpp", ".cpp", ".cu"), (".py", ".pyi")
SUFFIXES = (*CPP, *PYTHON, ".cmake", ".txt", ".sh")
# The code of a line, quoted parts included, before the # of a comment.
HASH = re.compile(r"""((?:[^#"']|"[^"]*"|'[^']*'|(?<=\S)#)*)#""")
PARAMETER = re.compile(r"/\*\S+\*/")
MARKS = re.compile(r"^\s*(?:/{2,}[!<]*|\*+|#+)")
# Words for tools, and the names of what an end brace ends.
FOR_TOOLS = re.compile(r"NOLINT|noqa\b|type: |clang-format o|!|namespace(?: [\w:]+)?$")
DANGLING = ("As", "By", "Of", "That", "Those", "What", "Where", "Which", "Whose")
# A command of Doxygen with its argument, a list's mark, `name:` of a field.
LEAD = re.compile(r"^(?:[@\\](?:param|tparam)(?:\[\w+\])?\s+\S+\s*|[@\\]\w+\s*|[-*]\s+|<\s*)?")
FIRST = re.compile(rf"^({'|'.join(DANGLING)})\b")
SENTENCE = re.compile(r"(?:(?<=[.!?:])|(?<=[.!?]\)))\s+(?=[A-Z`])")


def comments_of(text, suffix):
    """(line number, column, whether it stands alone on its line, text) of each comment."""
    if suffix in CPP:
        yield from cpp_comments(text)
    elif suffix in PYTHON:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                number, column = token.start
                yield number, column, not token.line[:column].strip(), token.string
    else:
        for number, line in enumerate(text.splitlines(), 1):
            if match := HASH.match(line):
                yield number, match.end(1), not match[1].strip(), line[match.end(1):]


def cpp_comments(text):
    """Those of C++, but names of parameters as in f(/*name=*/1)."""
    line = ""
    for number, piece in pieces_of(text):
        if is_comment(piece) and not PARAMETER.fullmatch(piece):
            yield number, len(line), not line.strip(), piece
        line = "" if piece == "\n" else line + piece


def words_of(comment):
    """What a comment says, without its marks."""
    lines = comment.removeprefix("/*").removesuffix("*/").splitlines()
    return " ".join(MARKS.sub("", line).strip() for line in lines).strip()


def blocks_of(text, suffix):
    """(line number, text) of each comment; lines that stand alone one below the other are one, and
    so is a comment behind code with the lines that go on below it."""
    block, start, last, place = [], 0, 0, None
    for number, column, is_alone, comment in comments_of(text, suffix):
        words = words_of(comment)
        if FOR_TOOLS.match(words) or comment.startswith("#!"):
            continue
        goes_on = block and is_alone and number == last + 1 and place in ("alone", column)
        if block and not goes_on:
            yield start, " ".join(block)
            block = []
        start = start if block else number
        place = place if goes_on else ("alone" if is_alone else column)
        block.append(words)
        last = number + comment.count("\n")
    if block:
        yield start, " ".join(block)


def docstrings_of(text):
    """(line number, text) of each docstring: of modules, classes, functions, and attributes."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for place, statement in enumerate(node.body):
            is_text = (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
                       and isinstance(statement.value.value, str))
            before = node.body[place - 1] if place else None
            if is_text and (before is None or isinstance(before, (ast.Assign, ast.AnnAssign))):
                yield from paragraphs_of(statement.lineno, statement.value.value)


def paragraphs_of(number, text):
    """(line number, text) of each paragraph of a text that begins at line `number`."""
    block, start = [], number
    for place, line in enumerate([*text.splitlines(), ""], number):
        if line.strip():
            start = start if block else place
            block.append(line.strip())
        else:
            if block:
                yield start, " ".join(block)
            block = []


def dangling_sentences(block):
    # Parameters and errors begin sentences of their own.
    parts = re.split(r"(?=[@\\](?:param|return|throws|tparam)\b)", block)
    sentences = [LEAD.sub("", sentence) for part in parts for sentence in SENTENCE.split(part)]
    return [sentence for sentence in sentences if FIRST.match(sentence)]


def sources(root, folders):
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(root), path.read_text(errors="replace")


def count(root, folders):
    """Blocks and dangling ones, by folder, and the places of these."""
    blocks, dangling, places = collections.Counter(), collections.Counter(), []
    for path, text in sources(root, folders):
        found_blocks = list(blocks_of(text, path.suffix))
        if path.suffix in PYTHON:
            found_blocks += docstrings_of(text)
        for number, block in found_blocks:
            blocks[path.parts[0]] += 1
            found = dangling_sentences(block)
            if found:
                dangling[path.parts[0]] += 1
                places.append(f"{path}:{number}: {found[0][:100]}")
    return blocks, dangling, places


# A text of each kind, with its comments as they are judged.
BLOCKS = (
    (".cpp", "int a;\n  // One.\n  // Of two.\nint b;  // Of c\n",
     [(2, "One. Of two."), (4, "Of c")]),
    (".hpp", "int a;  ///< Of a,\n        ///< once.\n/// B.\n", [(1, "Of a, once."), (3, "B.")]),
    (".cpp", "/* Of a\n * b. */\n/** What c. */ f(/*d=*/1);\n", [(1, "Of a b. What c.")]),
    (".cu", "auto a = \"// Of a\"; int b = 1'0;  // By b's\n#include <c>  // NOLINT\n",
     [(1, "By b's")]),
    (".py", "#!/bin/a\na = '# Of a'  # Of b\n# C.\nd = 1  # noqa: E1\n", [(2, "Of b"), (3, "C.")]),
    (".pyi", "a: int  # What a is.\n", [(1, "What a is.")]),
    (".sh", 'echo $# "# Of a"  # Of b\n', [(1, "Of b")]),
    (".cmake", 'set(a "#b")  # Of c\n# D\n', [(1, "Of c"), (2, "D")]),
)


def self_test():
    wrong = ["What windows stand on.", "The queue. Of the lane that is set.", "@param a As above.",
             "Two words: By rank.", "The set. @return What is left."]
    right = ["The memory that windows use.", "Off by one.", "Ask the owner as well.",
             "Bytes by rank."]
    missed = [text for text in wrong if not dangling_sentences(text)]
    taken = [text for text in right if dangling_sentences(text)]
    for text in missed + taken:
        print(f"judged wrongly: {text}")
    judged_apart = 0
    for suffix, text, expected in BLOCKS:
        found = list(blocks_of(text, suffix))
        if found != expected:
            print(f"{suffix}: expected {expected}, found {found}")
            judged_apart += 1
    module = '"""Of a."""\nx = 1\n"""By b."""\ndef f():\n    """C.\n\n    What d\n    e.\n    """\n'
    blocks = sorted(docstrings_of(module))
    if blocks != [(1, "Of a."), (3, "By b."), (5, "C."), (7, "What d e.")]:
        print(f"expected the docstrings of lines 1, 3, 5 and 7, found {blocks}")
        return 1
    if missed or taken or judged_apart:
        return 1
    print(f"{len(wrong)} dangling comments were found, {len(right)} others passed")
    return 0


def main():
    arguments = sys.argv[1:]
    if arguments == ["--self-test"]:
        return self_test()
    if arguments[:1] == ["--list"]:
        _, _, places = count(pathlib.Path(arguments[1]), arguments[2:] or FOLDERS)
        print("\n".join(places))
        print(f"{len(places)} comments begin a sentence with a dangling word")
        return 0
    blocks, dangling, _ = count(pathlib.Path(arguments[0]), FOLDERS)
    above = []
    for folder in FOLDERS:
        share = dangling[folder] / max(blocks[folder], 1)
        print(
            f"{folder:12} {blocks[folder]:5} comments, {dangling[folder]:4} dangling ({share:.1%})")
        if share > LIMIT:
            above.append(folder)
    total = sum(dangling.values()) / max(sum(blocks.values()), 1)
    print(f"{'all':12} {sum(blocks.values()):5} comments, {sum(dangling.values()):4} dangling "
          f"({total:.1%})")
    if above:
        print(f"expected at most {LIMIT:.0%} in each folder, found more in {', '.join(above)}: "
              "comments.py --list shows them")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
