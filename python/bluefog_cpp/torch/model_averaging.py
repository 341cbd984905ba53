"""A model averager of the interface of torch.distributed.algorithms.model_averaging, which for
example torch.distributed.optim.PostLocalSGDOptimizer takes."""

from collections.abc import Iterable
from typing import Any

import torch
from torch.distributed.algorithms.model_averaging.averagers import ModelAverager

from bluefog_cpp import _arguments
from bluefog_cpp._arguments import checked
from bluefog_cpp.errors import ArgumentTypeError
from bluefog_cpp.torch._collectives import allreduce_nonblocking_, synchronize
from bluefog_cpp.torch._neighbor_collectives import (
    hierarchical_neighbor_allreduce_nonblocking,
    neighbor_allreduce_nonblocking_,
)
from bluefog_cpp.torch._optimizers import CommunicationType
from bluefog_cpp.torch._plans import check_average
from bluefog_cpp.torch._runtime import current

Parameters = Iterable[torch.nn.Parameter] | Iterable[dict[str, Any]]


class NeighborAverager(ModelAverager):
    """Averages parameters with neighbours every `period` steps, from step `warmup_steps` on:
    x ← W x, in place.

    communication_type: over whom; the weights are those of the topology. row_sums: "any" where they
    may sum to something else than 1, which multiplies parameters by the sum each time.
    torch.distributed need not be initialized. Cost of an average: one call of that type for each
    parameter. Raises InvalidArgument for a period below 1 or a
    negative number of steps.
    """

    def __init__(self, period: int = 1, warmup_steps: int = 0,
                 communication_type: CommunicationType = CommunicationType.neighbor_allreduce,
                 row_sums: str = "one"):
        # The base's constructor is not called, as it asks for a process group.
        call = "NeighborAverager"
        self.process_group = None  # type: ignore[assignment]  # there is one group, that of init
        self.period = checked(call, "period", _arguments.at_least(1), period)
        self.warmup_steps = checked(call, "warmup_steps", _arguments.at_least(0), warmup_steps)
        self.communication_type = checked(
            call, "communication_type",
            _arguments.instance_of(CommunicationType, "a CommunicationType"), communication_type)
        self.row_sums = checked(call, "row_sums", _arguments.one_of("one", "any"), row_sums)
        self.step = 0

    def average_parameters(self, params: Parameters) -> None:
        """Collective. Counts a step, and averages if it is one of those.

        params: of a model, or the groups of an optimizer. All in flight together.
        Raises InvalidArgument where weights of the topology do not sum to 1, and `row_sums` is not
        "any".
        """
        steps = self.step - self.warmup_steps
        self.step += 1
        if steps >= 0 and steps % self.period == 0:
            self._average(_tensors(params))

    def _average(self, tensors: list[torch.Tensor]) -> None:
        kind, runtime = self.communication_type, current()
        if kind is CommunicationType.empty:
            return
        topology = {CommunicationType.neighbor_allreduce: runtime.topology,
                    CommunicationType.hierarchical_neighbor_allreduce: runtime.machine_topology}
        averaged = topology.get(kind)
        if self.row_sums == "one" and averaged is not None:
            runtime.or_refuse(lambda: check_average("average_parameters", averaged))
        if kind is CommunicationType.hierarchical_neighbor_allreduce:
            handles = [hierarchical_neighbor_allreduce_nonblocking(t, name=f"parameter {place}")
                       for place, t in enumerate(tensors)]
            for tensor, handle in zip(tensors, handles):
                tensor.copy_(synchronize(handle))
            return
        start = (allreduce_nonblocking_ if kind is CommunicationType.allreduce
                 else neighbor_allreduce_nonblocking_)
        for handle in [start(t, name=f"parameter {place}") for place, t in enumerate(tensors)]:
            synchronize(handle)


def _tensors(params: Parameters) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    wrong = isinstance(params, (str, torch.Tensor)) or not isinstance(params, Iterable)
    for item in () if wrong else params:
        found.extend(item["params"] if isinstance(item, dict) else [item])
    wrong = wrong or not all(isinstance(parameter, torch.Tensor) for parameter in found)
    if wrong:
        raise ArgumentTypeError(
            f"{_arguments.place('average_parameters')}: params: expected parameters, or the groups "
            f"of an optimizer, found {_arguments.described(params)}")
    return [parameter.detach() for parameter in found]
