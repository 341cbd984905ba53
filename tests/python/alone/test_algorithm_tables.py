"""Tables and lists of algorithms in the pages are what the algorithms' rows say."""

import pathlib
import re
import subprocess
import sys

import pytest

from bluefog_cpp import algorithms
from bluefog_cpp._extension import core
from bluefog_cpp.errors import InvalidArgument

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "optimizers.md"
PAGES = ("README.md", "docs/algorithms_and_graphs.md", "docs/examples.md", "docs/optimizers.md",
         "docs/python.md")


@pytest.mark.parametrize("name", PAGES)
def test_page_is_what_the_rows_say(name):
    page = (ROOT / name).read_text(encoding="utf-8")
    assert algorithms.with_tables(page) == page, (
        f"run python -m bluefog_cpp.algorithms --write {name}")
    if name not in ("docs/algorithms_and_graphs.md", "docs/optimizers.md"):
        assert all(f"`{row.name}`" in page for row in core.algorithms())


def test_pages_with_marks_are_those():
    found = [path.relative_to(ROOT).as_posix()
             for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
             if "<!-- rows: " in path.read_text(encoding="utf-8")]
    assert sorted(found) == sorted(PAGES)


def test_page_of_optimizers_has_every_table():
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"<!-- rows: {name} -->" in page for name in algorithms.TABLES)


def test_every_algorithm_is_on_the_page():
    page = PAGE.read_text(encoding="utf-8")
    assert len(core.algorithms()) >= 16
    for row in core.algorithms():
        assert f"`{row.equation}`" in page and row.source in page


def test_command(tmp_path):
    page = tmp_path / "page.md"
    marks = "\n".join(f"<!-- rows: {name} -->\nold\n<!-- end of rows -->"
                      for name in algorithms.TABLES)
    marks += "\n| names | <!-- rows: names -->old<!-- end of rows -->: all |"
    page.write_text(f"# Page\n{marks}\nrest\n", encoding="utf-8")
    command = [sys.executable, "-m", "bluefog_cpp.algorithms"]
    subprocess.run([*command, "--write", page], check=True)
    written = page.read_text(encoding="utf-8")
    assert "old" not in written and written.startswith("# Page\n") and written.endswith("\nrest\n")
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert all(line in written for line in printed.splitlines())
    assert algorithms.with_tables(written) == written
    assert "\n| names | <!-- rows: names -->`adapt_then_combine` (`atc`), " in written
    assert written.count("\n| names |") == 1 and "<!-- end of rows -->: all |\n" in written


@pytest.mark.parametrize("page, words", (
    ("# Page\n", "expected marks such as '<!-- rows: algorithms -->'.*found none"),
    ("<!-- rows: names -->\n", "expected '<!-- end of rows -->' after each.*found 1.* and 0 ends"),
    ("<!-- rows: others --><!-- end of rows -->", "expected the rows of algorithms, .*'others'")))
def test_marks_that_are_wrong_are_refused(page, words):
    with pytest.raises(ValueError, match=words):
        algorithms.with_tables(page)


@pytest.mark.parametrize("name", ["", "no such file", "/"])
def test_a_file_that_cannot_be_loaded_is_named(name):
    with pytest.raises(InvalidArgument, match=f"load_algorithms, '{name}': expected "):
        algorithms.load(name)


@pytest.mark.parametrize("words, expected", (
    (("--load", "nowhere.py"), "error: --load: load_algorithms, 'nowhere.py': expected a file"),
    (("--write", "nowhere.md"), "error: --write nowhere.md: .*No such file")))
def test_the_command_names_what_it_cannot_read(words, expected):
    job = subprocess.run([sys.executable, "-m", "bluefog_cpp.algorithms", *words],
                         capture_output=True, text=True, check=False)
    assert job.returncode == 2 and re.search(expected, job.stderr)


def test_a_bar_in_a_text_stays_in_its_cell():
    assert algorithms._table(("norm", "of"), [("`|x|`", "two\nlines")]).splitlines()[2] == (
        r"| `\|x\|` | two lines |")
