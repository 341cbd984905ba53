"""Optimizers whose steps are one rank's part of decentralized training.

The functions take any optimizer of `torch.optim`, and return one of the same class with the same
groups and state, for the parameters of `model` (or of several models). Schedulers, `state_dict`,
gradient clipping and GradScaler work as with the plain one. Parameters move into flat memory of the
core; they stay what they are for everybody else.

All ranks wrap the same model, and step equally often.
"""

import contextlib
import enum
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import torch

from bluefog_cpp import _arguments
from bluefog_cpp._arguments import checked
from bluefog_cpp._extension import core
from bluefog_cpp.errors import ArgumentTypeError, InvalidArgument, StateError, UncopyableError
from bluefog_cpp.torch import _plans
from bluefog_cpp.torch._deprecation import old_attribute
from bluefog_cpp.torch._distributed_step import DistributedStep
from bluefog_cpp.torch._membership import meet_if_due, survived_step
from bluefog_cpp.torch._ranges import uncompiled
from bluefog_cpp.torch._runtime import current
from bluefog_cpp.torch._wrapped import steering
from bluefog_cpp.torch._wrapped.carried_state import CARRIED, of_use
from bluefog_cpp.torch._wrapped.distributed_checkpoint import taken_from, with_carried
from bluefog_cpp.torch._wrapped.handing_over import hand_over_again
from bluefog_cpp.torch._wrapped.late_rank import LateRank
from bluefog_cpp.torch._wrapped.model_parts import Models, check_values, models_of
from bluefog_cpp.torch._wrapped.shared_groups import SharedGroups
from bluefog_cpp.torch._wrapped.steering import Steering


class CommunicationType(enum.Enum):
    """Over whom a step averages: as the function of that name does, or (`empty`) over nobody."""

    neighbor_allreduce = "neighbor.allreduce"
    hierarchical_neighbor_allreduce = "hierarchical.neighbor.allreduce"
    allreduce = "allreduce"
    empty = "empty"


_AVERAGING = {
    CommunicationType.neighbor_allreduce: core.Averaging.neighbors,
    CommunicationType.hierarchical_neighbor_allreduce: core.Averaging.machines,
    CommunicationType.allreduce: core.Averaging.everybody,
    CommunicationType.empty: core.Averaging.nobody,
}


class WrappedOptimizer:
    """The part that wrapped classes have in common; comes before the user's class."""

    # GradScaler then always calls `step`, also with infinities, and leaves the unscaling to it.
    _step_supports_amp_scaling = True

    _label: str
    """The optimizer in messages."""
    _choices: dict[str, Any]
    """The choices that it was wrapped with, by name: attributes that may be read."""

    _distributed: DistributedStep
    _shared: SharedGroups

    def __setattr__(self, name: str, value: Any) -> None:
        steering.check_name(self, name)
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        choices = self.__dict__.get("_choices", {})
        if name in choices:
            return choices[name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise UncopyableError(
            f"{self._label}: expected to be the only one, found that it is copied or pickled: it "
            "stands for this rank's part of a group. Copy or save state_dict(), and load that into "
            "an optimizer that is wrapped anew")

    @uncompiled
    def step(self, closure: Callable | None = None):
        """The local step and the average, as the algorithm has it. Returns the closure's loss.
        Where a rank is lost, it goes on without it (`shrink`), with `BLUEFOG_ON_FAILURE=shrink`,
        and takes in processes that wait to join (`enter`).
        Raises what went wrong between ranks, and InvalidArgument or StateError for parameters that
        have changed; the step counts all the same."""
        self._shared.note_step()
        if self._distributed.makes_state_only():
            return self._distributed.local_step()
        while current().handed.is_due:  # once more where a rank is lost in it
            survived_step(hand_over_again)
        self._distributed.is_in_step = True
        loss = survived_step(lambda: self._distributed.step(closure, self._before_round),
                             self._distributed.windows_of)
        self._distributed.is_in_step = False
        meet_if_due(self._distributed)
        return loss

    @uncompiled
    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients: to none, or to zeros, which costs gradient all-reduce more."""
        if not self._distributed.zero_grad(set_to_none):
            super().zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """torch's, and under "bluefog_cpp" the counts of steps and rounds, by which graphs and
        every k-th step go, and what the algorithm carries from step to step: `load_state_dict` goes
        on from there. Differs between ranks, which each save their own. Call `finish` before.
        In what `get_state_dict` of torch.distributed.checkpoint gets it is a key of the first
        group, unless that is flattened, and then nowhere."""
        return with_carried(super().state_dict(), self._distributed.carried())

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Local: all ranks load, or one of them does and `broadcast_optimizer_state` follows, or
        they are in other rounds. Counts and what an algorithm carries stay as they are where the
        state has none (of a plain optimizer, of version 0.1) or is of another algorithm that
        carries nothing: call `restart` on all ranks where the parameters are others. Raises
        InvalidArgument where it carries something for another algorithm or model; nothing is
        changed then."""
        state_dict, found = taken_from(state_dict)
        carried = of_use(found, self._distributed.has_ended)
        if carried is not None:
            self._distributed.check_carried(carried)
        super().load_state_dict(state_dict)
        if carried is not None:
            self._distributed.resume(carried)

    def add_param_group(self, param_group) -> None:
        """Raises StateError: wrap the optimizer after its groups are complete."""
        raise StateError(
            f"{self._label}, add_param_group: expected groups that were complete when the "
            "optimizer was wrapped; add the group to the plain optimizer, and wrap that "
            "again on all ranks")

    def refuse_step(self, reason: str) -> None:
        """Leaves a step out, in place of `step()`: where this rank has no loss, or has found its
        data to be wrong. The step counts, so that ranks go on with the same round of a schedule;
        those that wait for this one in it raise PeerFailure with the reason."""
        reason = checked(f"{type(self).__name__}.refuse_step", "reason", _arguments.text, reason)
        while current().handed.is_due:  # the others' step begins with it
            survived_step(hand_over_again)
        self._distributed.refuse_step(f"{self._label}, refuse_step: {reason}")

    def finish(self) -> None:
        """Ends averages that are in flight, so that the parameters hold all that they are due:
        before evaluation and checkpoints, with adapt-with-combine. Local. Raises StateError where
        the model holds other parameters than those that were averaged."""
        survived_step(self._distributed.finish, self._distributed.windows_of)

    @property
    def passes_over(self) -> bool:
        """Whether the next step does nothing here, because the other ranks had made it when a rank
        was lost: generators of dynamic graphs stand still then."""
        return self._distributed.passes_over

    def late_ranks(self) -> list[LateRank]:
        """The neighbours of this rank whose values came late, by rising rank, with `win_put`'s
        `grace_s`, `staleness_bound` or `leave_out_late`; else none. Local."""
        return [LateRank(*each) for each in self._distributed.core.late_ranks()]

    def synchronize(self) -> None:
        """Accepted for BlueFog's scripts: nothing is left to wait for. `backward` of gradient
        all-reduce returns with the means, and `step` waits for what it needs."""

    @contextlib.contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Accepted for BlueFog's scripts, which call `synchronize` themselves before `step`."""
        yield

    def turn_on_timeline(self) -> bool:
        """Accepted for BlueFog's scripts: `BLUEFOG_TIMELINE` turns the timeline on. False."""
        return False

    def turn_off_timeline(self) -> bool:
        """The same as `turn_on_timeline`."""
        return False

    def _before_round(self) -> _plans.Step | None:
        """Prepares a communicating step; its plan, if it has one."""
        return None


class GradientOptimizer(WrappedOptimizer):
    """Gradient all-reduce: `backward` returns with the means, so all that comes between it and
    `step` sees them."""


class NeighborOptimizer(WrappedOptimizer):
    """Averages of parameters. Attributes that are set between steps make them dynamic, as the
    arguments of `neighbor_allreduce` and `hierarchical_neighbor_allreduce` of the same names."""

    self_weight = Steering(None, steering.weight)
    src_weights = Steering(None, steering.sources_of_average)
    dst_weights = Steering(None, steering.receivers_of_average)
    src_machine_weights = Steering(None, steering.machine_weights)
    dst_machine_weights = Steering(None, steering.receiving_machines)
    enable_topo_check = Steering(False, steering.switch)
    _communication_type = CommunicationType.neighbor_allreduce

    @property
    def communication_type(self) -> CommunicationType:
        """Over whom steps average; may be changed between steps, on all ranks alike."""
        return self._communication_type

    @communication_type.setter
    def communication_type(self, value: CommunicationType) -> None:
        try:
            communication_type_check(value)
        except InvalidArgument as error:
            raise type(error)(f"{self._label}, communication_type: {error}") from None
        self._distributed.core.set_averaging(_AVERAGING[value])
        self._distributed.averages_over_nobody = value is CommunicationType.empty
        self._communication_type = value

    def _before_round(self) -> _plans.Step | None:
        runtime = current()
        if self._communication_type is CommunicationType.neighbor_allreduce:
            return _plans.neighbor_plan(runtime, self.self_weight, self.src_weights,
                                        self.dst_weights,
                                        self.enable_topo_check)
        if self._communication_type is CommunicationType.hierarchical_neighbor_allreduce:
            return _plans.machine_plan(runtime, self.self_weight, self.src_machine_weights,
                                       self.dst_machine_weights, self.enable_topo_check)
        return None


for _old, _new in (("neighbor_weights", "src_weights"), ("send_neighbors", "dst_weights"),
                   ("neighbor_machine_weights", "src_machine_weights"),
                   ("send_neighbor_machines", "dst_machine_weights")):
    setattr(NeighborOptimizer, _old, old_attribute(_old, _new))
    steering.ATTRIBUTES.add(_old)


class PushSumOptimizer(WrappedOptimizer):
    """Push-sum over the topology's out-edges: each rank hands out its value and its scalar in equal
    shares, and takes gradients at their quotient. Needs no balanced graph."""

    dst_weights = Steering(None, steering.shares)
    """Shares for the out-neighbours, of which the rank keeps what is left of 1."""
    self_weight = Steering(None, steering.weight)
    """The share that the rank keeps: None, or what the others leave of 1."""
    force_barrier = Steering(False, steering.switch)

    def unregister_window(self) -> None:
        """Accepted for BlueFog's scripts: there is no window."""

    def _before_round(self) -> _plans.Step | None:
        runtime = current()
        plan = runtime.topology.plan
        share = 1.0 / (len(plan.dst_ranks) + 1)
        shares = dict.fromkeys(plan.dst_ranks, share)
        if self.dst_weights is not None:
            given = steering.shares(self.dst_weights)
            strangers = sorted(set(given) - set(plan.dst_ranks))
            if strangers:
                raise InvalidArgument(
                    f"rank {runtime.rank}, dst_weights: expected out-neighbours of "
                    f"the topology, which are {plan.dst_ranks}, found {strangers}")
            # Out-neighbours that are left out hear all the same.
            shares = {rank: given.get(rank, 0.0) for rank in plan.dst_ranks}
            share = 1.0 - sum(shares.values())
        if self.self_weight is not None and abs(float(self.self_weight) - share) > 1e-6:
            raise InvalidArgument(
                f"rank {runtime.rank}, self_weight: expected {share}, what the shares "
                f"leave of 1, found {self.self_weight}")
        pushes = core.NeighborPlan(runtime.rank, runtime.size, share,
                                   dict.fromkeys(plan.src_ranks, 1.0), shares)
        pushes.take_graph(plan)
        return _plans.static_plan(runtime.topology)._replace(plan=pushes)


communication_type_check = _arguments.instance_of(CommunicationType, "a CommunicationType")


def _wrappable(optimizer: Any) -> torch.optim.Optimizer:
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ArgumentTypeError(
            f"expected a torch.optim.Optimizer, found {_arguments.described(optimizer)}")
    if isinstance(optimizer, WrappedOptimizer) and not optimizer._distributed.has_ended:
        raise InvalidArgument("expected a plain optimizer, found one that is distributed already")
    return optimizer


# Attributes of a wrapped optimizer that another one does not take over.
_OWN = frozenset(("_label", "_choices", "_distributed", "_shared", "_own_windows",
                  "_communication_type"))


def wrap(optimizer: torch.optim.Optimizer, kind: type, maker: str, models: Models, algorithm: str,
         num_steps_per_communication: int, choices: dict[str, Any] | None = None,
         row_sums: str = "one", **options: Any) -> Any:
    """An object of a class that is `kind` and the optimizer's, with the optimizer's groups and
    state.

    optimizer: a plain one, or one that was wrapped and has ended. maker: the public function that
    wraps.
    choices: what its caller chose. row_sums: "one", or "any" where rows of W may sum to other
    numbers. options: further ones of the core's.
    """
    runtime = current()
    runtime.argument(maker, "optimizer", _wrappable, optimizer)
    models = runtime.argument(maker, "model", models_of, models)
    runtime.argument(maker, "model", check_values, models)
    num_steps_per_communication = runtime.argument(maker, "num_steps_per_communication",
                                                   _arguments.at_least(1),
                                                   num_steps_per_communication)
    row_sums = runtime.argument(maker, "row_sums", _arguments.one_of("one", "any"), row_sums)
    # The class that an ended wrapper was made of, if `optimizer` is one.
    base = type(optimizer)
    if isinstance(optimizer, WrappedOptimizer):
        base = base.__bases__[1]
    wrapped_class = type(base.__name__, (kind, base), {"__doc__": base.__doc__,
                                                       "__module__": base.__module__})
    wrapped = wrapped_class.__new__(wrapped_class)
    # A scheduler leaves its own `step` on the plain object.
    wrapped.__dict__.update({name: value for name, value in optimizer.__dict__.items()
                             if name not in _OWN and name != "step"})
    wrapped.__dict__.update(
        _label=f"rank {current().rank}, {base.__name__} of {maker}",
        _choices={"num_steps_per_communication": num_steps_per_communication,
                  "row_sums": row_sums, **(choices or {})},
        _shared=SharedGroups(optimizer, wrapped))
    for group in wrapped.param_groups:
        group.pop(CARRIED, None)  # of a checkpoint that the plain one has read
    wrapped._patch_step_function()
    wrapped._distributed = DistributedStep(
        maker, wrapped, base, models, algorithm, num_steps_per_communication,
        {"row_sums": core.RowSums.__members__[row_sums], **options})
    return wrapped
