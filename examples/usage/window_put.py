"""One-sided: a rank writes into the buffers that its neighbours keep for it, while they call nothing."""

import torch

import bluefog_cpp.torch as bf

bf.init()
x = torch.full((1000,), float(bf.rank()))
bf.win_create(x, "x")
for _ in range(50):
    bf.neighbor_win_put(x, "x")
    bf.barrier()  # for figures that are the same in each run; not needed else
    bf.win_update("x")  # the average of the own value and the buffers
    bf.barrier()
print(f"rank {bf.rank()}: {x[0]:g}")
bf.win_free("x")
