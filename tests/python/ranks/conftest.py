"""Each case has a context of its own, so that one that fails on a rank leaves the next in order."""

import contextlib
import os
import pathlib
import runpy
import sys

import pytest
import torch
import torch.distributed as dist

import bluefog_cpp
import bluefog_cpp.torch as bf

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples"


def pytest_configure(config):
    config.addinivalue_line("markers", "up_to_ranks(n): a long case that more ranks add nothing to")
    config.addinivalue_line("markers", "from_ranks(n): a long case that fewer ranks add nothing to")
    config.addinivalue_line("markers", "long: with LEVEL=long alone")


def pytest_collection_modifyitems(config, items):
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    for item in list(items):
        too_many = any(ranks > mark.args[0] for mark in item.iter_markers("up_to_ranks"))
        too_few = any(ranks < mark.args[0] for mark in item.iter_markers("from_ranks"))
        if too_many or too_few:
            items.remove(item)
            config.hook.pytest_deselected(items=[item])


@pytest.fixture(autouse=True)
def ranks():
    torch.manual_seed(7)
    bf.init()
    yield
    # The case itself has said what went wrong, or has ended the context.
    with contextlib.suppress(bluefog_cpp.Error):
        bf.barrier()  # the others may still be using this rank's windows
    bf.shutdown()


@pytest.fixture
def rank():
    return bf.rank()


@pytest.fixture
def size():
    return bf.size()


@pytest.fixture
def gloo(size):
    """torch's process group of the same ranks, by the environment that bfrun sets; it stays."""
    if "RANK" not in os.environ:
        pytest.skip("not under bfrun")
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    assert dist.get_world_size() == size


@pytest.fixture
def run(monkeypatch, capfd):
    """Runs a script of examples/ and returns what this rank printed."""
    def run(script, *options):
        monkeypatch.setattr(sys, "argv", [script, *map(str, options)])
        monkeypatch.syspath_prepend(EXAMPLES)
        capfd.readouterr()
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")
        return capfd.readouterr().out
    return run


class OtherRanks(pytest.skip.Exception):
    """Leaves a case that can never run on this number of ranks."""


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    # tests/run_ranks.py counts such a case where it can run, and fails it where it ran nowhere.
    if call.excinfo is not None and call.excinfo.errisinstance(OtherRanks):
        item.user_properties.append(("other_ranks", str(call.excinfo.value)))
    yield


def needs(at_least):
    """The case does not count on fewer ranks."""
    if bf.size() < at_least:
        raise OtherRanks(f"needs {at_least} ranks, has {bf.size()}")
