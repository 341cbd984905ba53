"""The tables of docs/optimizers.md are what the algorithms' rows say."""

import pathlib
import subprocess
import sys

import pytest

from bluefog_cpp import algorithms
from bluefog_cpp._extension import core

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs" / "optimizers.md"


def test_page_is_what_the_rows_say():
    page = PAGE.read_text(encoding="utf-8")
    assert algorithms.with_tables(page) == page, (
        "run python -m bluefog_cpp.algorithms --write docs/optimizers.md")


def test_every_algorithm_is_on_the_page():
    page = PAGE.read_text(encoding="utf-8")
    assert len(core.algorithms()) >= 16
    for row in core.algorithms():
        assert f"`{row.equation}`" in page and row.source in page


def test_command(tmp_path):
    page = tmp_path / "page.md"
    marks = "\n".join(f"<!-- rows: {name} -->\nold\n<!-- end of rows -->"
                      for name in algorithms.TABLES)
    page.write_text(f"# Page\n{marks}\nrest\n", encoding="utf-8")
    command = [sys.executable, "-m", "bluefog_cpp.algorithms"]
    subprocess.run([*command, "--write", page], check=True)
    written = page.read_text(encoding="utf-8")
    assert "old" not in written and written.startswith("# Page\n") and written.endswith("\nrest\n")
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert all(line in written for line in printed.splitlines())
    assert algorithms.with_tables(written) == written


def test_a_page_without_marks_is_refused():
    with pytest.raises(ValueError, match="expected a line '<!-- rows: algorithms -->'.*found none"):
        algorithms.with_tables("# Page\n")
