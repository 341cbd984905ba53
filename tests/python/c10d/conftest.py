"""One process group of the backend for all cases of a launch, and one of gloo beside it, whose
values count as right."""

import os
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import bluefog_cpp.torch  # noqa: F401  registers the backend

TIMEOUT = timedelta(seconds=30)


@pytest.fixture(scope="session", autouse=True)
def _groups():
    if "RANK" not in os.environ:
        yield
        return
    torch.set_num_threads(1)
    dist.init_process_group("bluefog", timeout=TIMEOUT)
    yield
    dist.destroy_process_group()


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(7)


@pytest.fixture(scope="session")
def gloo(_groups):
    return dist.new_group(backend="gloo", timeout=TIMEOUT)


@pytest.fixture(scope="session")
def bluefog(_groups):
    """The default group."""
    return dist.group.WORLD


@pytest.fixture
def rank():
    return dist.get_rank()


@pytest.fixture
def size():
    return dist.get_world_size()


@pytest.fixture
def both(bluefog, gloo):
    """Runs a function of a group with the backend's and with gloo's, and gives the two results."""
    def run(function):
        results = []
        for group in (bluefog, gloo):
            torch.manual_seed(7)
            results.append(function(group))
        return results
    return run
