"""The texts that docs/when_something_is_wrong.md quotes are those of the sources.

    quoted_errors.py ROOT

A quotation is code in the first cell of a table of words; … stands for what changes.
"""

import pathlib
import re
import sys

PAGE = "docs/when_something_is_wrong.md"
FOLDERS = ("bluefog_cpp", "ops", "optimizers", "python", "tools", "topology")
SUFFIXES = {".cpp", ".hpp", ".py"}


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


def joined_literals(source):
    """The source with literals joined that stand one behind the other."""
    return re.sub(r'"\s*f?"', "", source)


def missing_parts(root):
    sources = "\n".join(joined_literals(path.read_text())
                        for folder in FOLDERS for path in sorted((root / folder).rglob("*"))
                        if path.suffix in SUFFIXES)
    found = list(quotations((root / PAGE).read_text()))
    if len(found) < 20:
        yield f"{PAGE}: expected 20 quotations or more, found {len(found)}"
    for quotation in found:
        for part in quotation.split("…"):
            if part.strip() and part.strip() not in sources:
                yield f"{PAGE}: '{quotation}': no source has '{part.strip()}'"


def main(root):
    problems = list(missing_parts(root))
    print("\n".join(problems) if problems else "all quoted texts are in the sources")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve()))
