"""Messages print in every locale: no string of the sources has a character outside ASCII, but for
texts that are no messages (tables of algorithms and families, the output and help of commands).

    ascii_messages.py ROOT         check the sources below ROOT
    ascii_messages.py --self-test  check that each kind of string is seen
"""

import ast
import pathlib
import re
import sys
import tempfile

FOLDERS = ("bluefog_cpp", "topology", "ops", "optimizers", "nn", "pipeline", "python", "tools",
           "examples", "cmake")
# Begin of a path: words of the lines whose strings may have such characters, and why.
OTHERS = {
    "optimizers/algorithms/": (r"equation|description|carried|meaning|note", "rows of tables"),
    "topology/graphs/families.cpp": (r"", "rows of tables"),
    "python/bluefog_cpp/algorithms.py": (r"", "tables of the rows"),
    "tools/bftopo/": (r"", "output and help"),
    "examples/train_images/options.cpp": (r"", "help"),
}
TOKEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^()\s]*)\((?P<raw>.*?)\)(?P=mark)"|"(?P<text>(?:\\.|[^"\\\n])*)"'
    r"|'(?:\\.|[^'\\\n])+'", re.DOTALL)


def strings_of_cpp(text):
    """(line, content) of each literal that is no comment."""
    for token in TOKEN.finditer(text):
        content = token["raw"] if token["raw"] is not None else token["text"]
        if content is not None:
            yield text.count("\n", 0, token.start()) + 1, content


def strings_of_python(text):
    """(line, content) of each literal that is no docstring."""
    tree = ast.parse(text)
    docs = {id(node.value) for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.lineno, node.value


def lines_of_script(text):
    """(line, content) of each line of a shell script or of CMake that is no comment."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.lstrip().startswith("#"):
            yield number, line


def may_have_others(path, line):
    return any(path.startswith(begin) and re.search(words, line)
               for begin, (words, _) in OTHERS.items())


def problems_below(root):
    readers = {".cpp": strings_of_cpp, ".hpp": strings_of_cpp, ".cu": strings_of_cpp,
               ".py": strings_of_python, ".sh": lines_of_script, ".cmake": lines_of_script}
    for folder in FOLDERS:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in readers:
                continue
            path, text = file.relative_to(root).as_posix(), file.read_text()
            lines = text.splitlines()
            for number, content in readers[file.suffix](text):
                near = " ".join(lines[max(0, number - 4):number])
                if not content.isascii() and not may_have_others(path, near):
                    yield f"{path}:{number}: expected ASCII alone in a message, found {content!r}"


WRONG = {
    "ops/a.cpp": 'throw Error("ranks 0 \u2026 3");',
    "ops/b.hpp": 'auto text = R"(1 \u2192 2)";',
    "cmake/a.sh": "# \u2026\nstop 'make \u2026'",
    "python/a.py": '"""\u2026"""\nraise ValueError(f"{1} \u2026 {2}")',
}
RIGHT = {
    "ops/c.cpp": "// \u2026\n/* \u2192 */ auto quote = '\"'; // \u201cnone\u201d\n",
    "ops/d.cpp": 'auto x = "a\\"b"; // "\u2026"',
    "python/b.py": '"""\u2026"""\n# \u2026\ndef f():\n    """\u2192"""\n    return "plain"',
    "optimizers/algorithms/a.cpp": 'row.equation = "x \u2190 W x";',
}


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, text in (WRONG | RIGHT).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        found = sorted({line.split(":")[0] for line in problems_below(root)})
    if found != sorted(WRONG):
        print(f"expected {sorted(WRONG)}, found {found}")
        return 1
    print(f"{len(WRONG)} wrong files were found, {len(RIGHT)} right ones passed")
    return 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    problems = list(problems_below(pathlib.Path(sys.argv[1])))
    print("\n".join(problems) or "messages are of ASCII alone")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
