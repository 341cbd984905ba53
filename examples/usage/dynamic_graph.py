"""One neighbour a step, by turns. On 2^k ranks the mean is exact after k steps."""

import torch

import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util

bf.init()
x = torch.full((1000,), float(bf.rank()))
if bf.size() > 1:
    turns = topology_util.GetDynamicOnePeerSendRecvRanks(bf.load_topology(), bf.rank())
    for _ in range((bf.size() - 1).bit_length()):
        send, receive = next(turns)
        x = bf.neighbor_allreduce(x, self_weight=0.5, src_weights=dict.fromkeys(receive, 0.5),
                                  dst_weights=send, name="x")
print(f"rank {bf.rank()}: {x[0]:g}")
