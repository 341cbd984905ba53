"""The tiny scripts of examples/usage print what their C++ twins do."""

import pathlib
import runpy

import pytest

import bluefog_cpp.torch as bf
from bluefog_cpp.util import env

ROOT = pathlib.Path(__file__).resolve().parents[3]
USAGE_TEST = runpy.run_path(str(ROOT / "tests" / "examples" / "usage_test.py"))


@pytest.mark.up_to_ranks(2)
@pytest.mark.parametrize("name", USAGE_TEST["EXPECTED"])
def test_usage(name, rank, size, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    bf.shutdown()  # each script begins by init
    capfd.readouterr()
    with env(BLUEFOG_NODES_PER_MACHINE="1" if name == "hierarchical" else None):
        runpy.run_path(str(ROOT / "examples" / "usage" / f"{name}.py"), run_name="__main__")
    assert capfd.readouterr().out == USAGE_TEST["line_of"](name, rank, size) + "\n"
    if name == "timeline":
        bf.shutdown()  # writes the end of the file
        assert not list(USAGE_TEST["problems_of_timeline"](tmp_path, rank))
        bf.init()
