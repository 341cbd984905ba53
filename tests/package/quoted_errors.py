"""The texts that pages quote in their tables of words are those of the sources.

    quoted_errors.py ROOT
    quoted_errors.py --self-test      check that a wrong quotation is found

A quotation is code in the first cell of a table of words; … stands for what changes. Its parts are
looked for inside the sources' string literals, those that stand one behind the other joined.
"""

import ast
import pathlib
import re
import sys

# Pages, with the number of quotations that each has at least.
PAGES = {"docs/when_something_is_wrong.md": 20, "docs/clusters.md": 8}
FOLDERS = ("bluefog_cpp", "ops", "optimizers", "python", "tools", "topology")
SUFFIXES = {".cpp", ".hpp", ".py"}
NOT_BETWEEN = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
LITERAL = re.compile(
    r"""//[^\n]*|/\*.*?\*/|'(?:[^'\\\n]|\\.)'|(?P<text>"(?:[^"\\\n]|\\.)*")""", re.DOTALL)


def quotations(page):
    """Quotations in tables whose first column is headed "words"."""
    of_words = False
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if not line.startswith("|"):
            of_words = False
        elif cells[1] == "words":
            of_words = True
        elif of_words:
            yield from re.findall(r"`([^`]+)`", cells[1])


def literals_of_cpp(source):
    """The texts of literals; comments and characters between them are passed over."""
    joined, end = None, 0
    for found in LITERAL.finditer(source):
        if found["text"] is None:
            continue
        text = found["text"][1:-1].replace('\\"', '"')
        if joined is not None and not NOT_BETWEEN.sub("", source[end:found.start()]).strip():
            joined += text
        else:
            if joined is not None:
                yield joined
            joined = text
        end = found.end()
    if joined is not None:
        yield joined


def literals_of_python(source):
    """The texts of literals, with {} for what f-strings put in; no docstrings."""
    tree = ast.parse(source)
    inside = {id(part) for node in ast.walk(tree)
              if isinstance(node, ast.JoinedStr) for part in node.values}
    inside |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "{}"
                          for part in node.values)
        elif (isinstance(node, ast.Constant) and isinstance(node.value, str)
              and id(node) not in inside):
            yield node.value


def literals_of(path):
    source = path.read_text()
    return literals_of_python(source) if path.suffix == ".py" else literals_of_cpp(source)


def missing_parts(page, literals):
    """(quotation, part) of those parts that no literal has."""
    for quotation in quotations(page):
        for part in (part.strip() for part in quotation.split("…")):
            if part and not any(part in literal for literal in literals):
                yield quotation, part


def self_test():
    cpp = ('throw Error("expected {} " // of all\n   "ranks \\"here\\"", \'"\', "found");'
           "f(wrong_name);")
    python = ('def f():\n    """In a docstring."""\n'
              '    raise Error(f"rank {rank}, "\n        "left")')
    literals = [*literals_of_cpp(cpp), *literals_of_python(python)]
    expected = ['expected {} ranks "here"', "found", "rank {}, left"]
    if literals != expected:
        print(f"expected the literals {expected}, found {literals}")
        return 1
    page = ("| words | cause |\n|---|---|\n| `expected … ranks`; `rank …, left` | |\n"
            "| `wrong_name` | |\n| `ranks here` | |\n| `of all` | |\n| `In a docstring` | |\n")
    missed = [quotation for quotation, _ in missing_parts(page, literals)]
    if missed != ["wrong_name", "ranks here", "of all", "In a docstring"]:
        print(f"judged wrongly: {missed}")
        return 1
    print(f"{len(missed)} wrong quotations were found, 2 others passed")
    return 0


def main(arguments):
    if arguments == ["--self-test"]:
        return self_test()
    root = pathlib.Path(arguments[0]).resolve()
    literals = [text for folder in FOLDERS for path in sorted((root / folder).rglob("*"))
                if path.suffix in SUFFIXES for text in literals_of(path)]
    problems = []
    for name, least in PAGES.items():
        page = (root / name).read_text()
        problems += [f"{name}: '{quotation}': no literal of the sources has '{part}'"
                     for quotation, part in missing_parts(page, literals)]
        count = len(list(quotations(page)))
        if count < least:
            problems.append(f"{name}: expected {least} quotations or more, found {count}")
    print("\n".join(problems) if problems else "all quoted texts are in the sources")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
