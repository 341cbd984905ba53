"""MPI that mpi4py has initialised, before our first call and after our last."""

import os
import sys

try:
    from mpi4py import MPI
except (ImportError, RuntimeError) as error:
    print(f"SKIPPED: mpi4py: {str(error).splitlines()[0]}")
    sys.exit(77)

import torch

import bluefog_cpp.torch as bf

world = MPI.COMM_WORLD
assert world.size == int(os.environ["WORLD_SIZE"]) and MPI.Is_initialized()
bf.init()
assert (bf.rank(), bf.size()) == (world.rank, world.size)
for _ in range(10):
    handle = bf.allreduce_nonblocking(torch.tensor([float(world.rank)]), average=False)
    total = world.allreduce(world.rank)
    assert bf.synchronize(handle).item() == total
bf.shutdown()
assert not MPI.Is_finalized() and world.allreduce(1) == world.size
