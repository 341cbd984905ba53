"""Communication hooks for torch's DistributedDataParallel: it keeps its buckets, and the bytes
travel by this package.

    # after init_process_group and bf.init
    model = torch.nn.parallel.DistributedDataParallel(model)
    model.register_comm_hook(None, allreduce_hook)
"""

import concurrent.futures
from typing import Any

import torch
import torch.distributed as dist

from bluefog_cpp.torch._collectives import allreduce_nonblocking_, synchronize

# Waits for buckets, one after the other, while the backward pass goes on.
_waiting = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="bluefog ddp")


def allreduce_hook(state: Any, bucket: dist.GradBucket  # type: ignore[name-defined]  # no stub
                   ) -> torch.futures.Future[torch.Tensor]:
    """A bucket's gradients become their means over all ranks, g ← (1/n) Σ_j g_j, while the next
    bucket is computed. Cost: one `allreduce_` for each bucket; its errors come out of `backward`.

    state: not used; None. The ranks are those of `bf.init`, whatever DDP's process group says: both
    must be the whole launch.
    """
    buffer = bucket.buffer()
    handle = allreduce_nonblocking_(buffer, name=f"DDP bucket {bucket.index()}")
    result: torch.futures.Future[torch.Tensor] = torch.futures.Future()

    def finish() -> None:
        try:
            result.set_result(synchronize(handle))
        except Exception as error:
            result.set_exception(error)  # type: ignore[arg-type]  # torch asks for results

    _waiting.submit(finish)
    return result
