"""The site of guides and reference builds without a warning, and has all public names."""

import inspect
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import bluefog_cpp.torch as bf
from bluefog_cpp import algorithms, errors, pipeline, topology_util

ROOT = pathlib.Path(__file__).resolve().parents[3]


def public_names(module):
    """Classes and functions, by the names that they were defined with."""
    return {value.__name__ for name, value in vars(module).items()
            if not name.startswith("_") and (inspect.isfunction(value) or inspect.isclass(value))
            and value.__module__.startswith("bluefog_cpp")}


def test_reference(tmp_path):
    pytest.importorskip("mkdocs")
    pytest.importorskip("mkdocstrings")
    build = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", ROOT / "mkdocs.yml", "-d",
         tmp_path],
        capture_output=True, text=True, check=False)
    assert build.returncode == 0, build.stderr
    pages = "".join(path.read_text() for path in (tmp_path / "reference").glob("*.html"))
    shown = {name.rpartition(".")[2] for name in re.findall(r'id="(bluefog_cpp\.[\w.]+)"', pages)}
    expected = set().union(*map(public_names, (bf, topology_util, errors, algorithms, pipeline)))
    assert {"load", "with_tables"} <= expected
    assert len(expected) > 80 and not expected - shown
    if shutil.which("doxygen"):
        headers = (tmp_path / "reference/cpp.html").read_text()
        assert '<a href="../cpp/context_8hpp.html">' in headers
        assert (tmp_path / "cpp/context_8hpp.html").is_file()


def test_the_first_page_names_all_others():
    docs = ROOT / "docs"
    named = set(re.findall(r"\(([\w/]+\.md)\)", (docs / "index.md").read_text()))
    pages = {path.relative_to(docs).as_posix()
             for path in (*docs.glob("*.md"), *docs.glob("reference/*.md"))}
    assert pages - {"index.md"} == named
