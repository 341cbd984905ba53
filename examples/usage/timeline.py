"""Writes what each call did, and whom it waited for: timeline0.json, …, for Perfetto.

`bfrun --timeline-filename timeline` does the same to a script that is not changed.
"""

import torch

import bluefog_cpp.torch as bf
from bluefog_cpp.util import env

with env(BLUEFOG_TIMELINE="timeline"):  # read once, by init
    bf.init()
x = torch.full((1000,), float(bf.rank()))
with bf.timeline_context("parameters", "my own span"):
    x = bf.neighbor_allreduce(x, name="parameters")
print(f"rank {bf.rank()}: timeline{bf.rank()}.json")
