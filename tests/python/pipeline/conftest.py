"""One process group of the backend for all cases of a launch."""

from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import bluefog_cpp.torch  # noqa: F401  registers the backend


@pytest.fixture(scope="session", autouse=True)
def _group():
    torch.set_num_threads(1)
    dist.init_process_group("bluefog", timeout=timedelta(seconds=30))
    yield
    dist.destroy_process_group()
