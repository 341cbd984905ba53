"""Sums of gradients over the replicas of a stage, while the backward pass goes on."""

import time
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import nn

from bluefog_cpp.errors import StateError
from bluefog_cpp.pipeline._times import StepTimes

Parameters = list[tuple[str, nn.Parameter]]


def _buckets_of(trained: Parameters, bucket_bytes: int) -> list[Parameters]:
    """Parameters in reverse order, as a backward pass comes to them, in buckets of at most so many
    bytes; a larger one has a bucket for itself."""
    buckets: list[Parameters] = []
    size = 0
    for name, parameter in reversed(trained):
        if not buckets or size + parameter.nbytes > bucket_bytes:
            buckets.append([])
            size = 0
        buckets[-1].append((name, parameter))
        size += parameter.nbytes
    return buckets


class GradientSums:
    """A bucket leaves as soon as the last backward pass of a step has finished its gradients.

    All replicas make the same calls, whatever rows they have. `close` takes the hooks away.
    is_far: whether some of them are on other machines.
    """

    def __init__(self, trained: Parameters, group: dist.ProcessGroup, bucket_bytes: int,
                 is_far: bool) -> None:
        self._group = group
        self._is_far = is_far
        self._buckets = _buckets_of(trained, bucket_bytes)
        self._hooks = [parameter.register_post_accumulate_grad_hook(
            lambda _, bucket=bucket, place=place: self._note(bucket, place))
            for bucket, members in enumerate(self._buckets)
            for place, (_, parameter) in enumerate(members)]
        self._is_last = False
        self._scale = (1, 1.0)
        self._ready: list[set[int]] = []
        self._sent: list[tuple[torch.Tensor, dist.Work | None]] = []
        self._began = 0.0

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def begin(self, divisor: int, share: float) -> None:
        """A step begins: its gradients are divided by `divisor`, then count `share`."""
        self._is_last = False
        self._scale = (divisor, share)
        self._sent = []

    def begin_last_backward(self) -> None:
        """The last backward pass of the step begins."""
        self._is_last = True
        self._ready = [set() for _ in self._buckets]

    def _note(self, bucket: int, place: int) -> None:
        if not self._is_last:
            return
        if bucket < len(self._sent):
            raise StateError(
                f"rank {dist.get_rank()}, ElasticPipeline, parameter "
                f"'{self._buckets[bucket][place][0]}': its gradient changed after its sum with the "
                "replicas had begun; expected layers whose backward pass comes to each parameter "
                "once (a reentrant checkpoint comes to it once more)")
        self._ready[bucket].add(place)
        while (len(self._sent) < len(self._buckets)
               and len(self._ready[len(self._sent)]) == len(self._buckets[len(self._sent)])):
            self._send()

    @torch.no_grad()
    def _send(self) -> None:
        """The next bucket."""
        if not self._sent:
            self._began = time.perf_counter()
        divisor, share = self._scale
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten()
                          for _, p in self._buckets[len(self._sent)]])
        flat.div_(divisor).mul_(share)
        self._sent.append((flat, dist.all_reduce(flat, group=self._group, async_op=True)))

    def finish(self, times: StepTimes) -> None:
        """Begins the sums that have not begun, and waits until gradients are sums."""
        self._is_last = False
        if not self._buckets:
            return
        with times.part("averaging", "all-reduce"):
            while len(self._sent) < len(self._buckets):
                self._send()
            for members, (flat, work) in zip(self._buckets, self._sent):
                if work is not None:
                    work.wait()
                self._hand_out(flat, members)
        times.averaging_whole = time.perf_counter() - self._began
        times.averaged_parameters = sum(flat.numel() for flat, _ in self._sent)
        times.averaged_bytes = sum(flat.nbytes for flat, _ in self._sent)
        times.machine_syncs += self._is_far  # buckets of a step count as one
        self._sent = []

    @staticmethod
    def _hand_out(flat: torch.Tensor, members: Sequence[tuple[str, nn.Parameter]]) -> None:
        parts = flat.split([parameter.numel() for _, parameter in members])
        for (_, parameter), part in zip(members, parts):
            parameter.grad = part.view_as(parameter)
