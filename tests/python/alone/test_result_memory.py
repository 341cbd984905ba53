"""How much memory of results that have gone is kept: BLUEFOG_RESULT_CACHE."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import torch
import bluefog_cpp.torch as bf

def resident():
    pages = open("/proc/self/statm").read().split()[1]
    return int(pages) * 4096 >> 20

bf.init()
source = torch.zeros(64 << 18)
results = [bf.neighbor_allreduce(source) for _ in range(3)]
full = resident()
del results
print(full - resident())
"""


@pytest.mark.parametrize("bound, given_back", [(0, 192), (128 << 20, 64), (1 << 30, 0)])
def test_what_is_beyond_the_bound_goes_back_to_the_system(bound, given_back):
    done = subprocess.run([sys.executable, "-c", SCRIPT], check=False, capture_output=True,
                          text=True,
                          env=os.environ | {"BLUEFOG_RESULT_CACHE": str(bound)}, timeout=300)
    assert done.returncode == 0, done.stderr
    assert abs(int(done.stdout.split()[-1]) - given_back) < 16, done.stdout
