"""One of three ranks of the backend "bluefog", of which the last is killed while the others wait
for it: `dying_rank_of_a_group.py STORE RANK`."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import bluefog_cpp.torch  # noqa: F401  registers the backend

store, rank = sys.argv[1], int(sys.argv[2])
dist.init_process_group("bluefog", init_method=f"file://{store}", rank=rank, world_size=3)
x = torch.ones(100)
dist.all_reduce(x)
if rank == 2:
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
future = dist.all_reduce(x, async_op=True).get_future()
try:
    future.wait()
except RuntimeError as error:
    print("future:", error)
try:
    dist.all_reduce(torch.ones(100))
except dist.DistBackendError as error:
    print("work:", error)
dist.destroy_process_group()
