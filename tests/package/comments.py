"""Counts the comments, and Python's docstrings, that begin with a dangling word, one that hides the
subject of its sentence:
"What windows stand on." in place of "The memory, server and thread that windows use."

    comments.py ROOT             the share of each folder; fails where a folder's is above the limit
    comments.py --list ROOT [FOLDER…]   every such comment with its place
    comments.py --self-test      check that they are found
"""

import ast
import collections
import pathlib
import re
import sys

LIMIT = 0.03
FOLDERS = ("bluefog_cpp", "topology", "ops", "optimizers", "nn", "python", "tools", "examples",
           "benchmarks", "cmake", "tests")
SUFFIXES = {".hpp": "//", ".cpp": "//", ".cu": "//", ".py": "#", ".cmake": "#", ".txt": "#",
            ".sh": "#"}
DANGLING = ("As", "By", "Of", "That", "Those", "What", "Where", "Which", "Whose")
# A command of Doxygen with its argument, a list's mark, `name:` of a field.
LEAD = re.compile(r"^(?:[@\\](?:param|tparam)(?:\[\w+\])?\s+\S+\s*|[@\\]\w+\s*|[-*]\s+|<\s*)?")
FIRST = re.compile(rf"^({'|'.join(DANGLING)})\b")
SENTENCE = re.compile(r"(?:(?<=[.!?:])|(?<=[.!?]\)))\s+(?=[A-Z`])")


def comment_of(line, mark):
    """The text of a line that is a comment and nothing else, or None."""
    stripped = line.strip()
    if not stripped.startswith(mark) or stripped.startswith("#!"):
        return None
    return stripped.lstrip(mark[0]).strip()


def blocks_of(text, mark):
    """(line number, text) of each run of comment lines."""
    block, start = [], 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        comment = comment_of(line, mark)
        if comment is None:
            if block:
                yield start, " ".join(block)
            block = []
        else:
            start = start if block else number
            block.append(comment)


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
        found_blocks = list(blocks_of(text, SUFFIXES[path.suffix]))
        if path.suffix == ".py":
            found_blocks += docstrings_of(text)
        for number, block in found_blocks:
            blocks[path.parts[0]] += 1
            found = dangling_sentences(block)
            if found:
                dangling[path.parts[0]] += 1
                places.append(f"{path}:{number}: {found[0][:100]}")
    return blocks, dangling, places


def self_test():
    wrong = ["What windows stand on.", "The queue. Of the lane that is set.", "@param a As above.",
             "Two words: By rank.", "The set. @return What is left."]
    right = ["The memory that windows use.", "Off by one.", "Ask the owner as well.",
             "Bytes by rank."]
    missed = [text for text in wrong if not dangling_sentences(text)]
    taken = [text for text in right if dangling_sentences(text)]
    for text in missed + taken:
        print(f"judged wrongly: {text}")
    (number, block), = blocks_of("int a;\n  // One.\n  // Of two.\nint b;  // Of c\n", "//")
    if (number, block) != (2, "One. Of two."):
        print(f"expected the block of lines 2 and 3, found {number}: {block}")
        return 1
    module = '"""Of a."""\nx = 1\n"""By b."""\ndef f():\n    """C.\n\n    What d\n    e.\n    """\n'
    blocks = sorted(docstrings_of(module))
    if blocks != [(1, "Of a."), (3, "By b."), (5, "C."), (7, "What d e.")]:
        print(f"expected the docstrings of lines 1, 3, 5 and 7, found {blocks}")
        return 1
    if missed or taken:
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
