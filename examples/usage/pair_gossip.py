"""Averages with one other rank. Only the two of a pair call; others do something else meanwhile."""

import torch

import bluefog_cpp.torch as bf

bf.init()
partner = bf.rank() ^ 1  # 0 with 1, 2 with 3, …
x = torch.full((1000,), float(bf.rank()))
if partner < bf.size():
    x = bf.pair_gossip(x, partner)
print(f"rank {bf.rank()}: {x[0]:g}")
