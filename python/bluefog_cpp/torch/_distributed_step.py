"""How a wrapped optimizer takes a step: the algorithm of the C++ core, which has the user's own
optimizer make each local step."""

import itertools
import re
import weakref
from collections.abc import Callable
from typing import Any

import torch

from bluefog_cpp import _arguments
from bluefog_cpp._extension import core
from bluefog_cpp.errors import (
    ArgumentTypeError,
    InvalidArgument,
    LateMismatchError,
    PeerFailure,
    StateError,
    TimeoutError,
    UnsupportedError,
)
from bluefog_cpp.torch import _plans
from bluefog_cpp.torch._devices import take_device_of
from bluefog_cpp.torch._moved_memory import check_unshared
from bluefog_cpp.torch._own.rows import made_for
from bluefog_cpp.torch._ranges import ranged
from bluefog_cpp.torch._runtime import current
from bluefog_cpp.torch._windows import free_retired_windows
from bluefog_cpp.torch._wrapped import local_optimizer
from bluefog_cpp.torch._wrapped.backward_passes import BackwardPasses
from bluefog_cpp.torch._wrapped.carried_state import carried_by, check_carried, resume
from bluefog_cpp.torch._wrapped.distributed_checkpoint import caller_in_torch
from bluefog_cpp.torch._wrapped.model_parts import ModelParts, Models, buffers_of, parameters_of

_numbers = itertools.count()
_Context = core.Context


class DistributedStep:
    """Steps `optimizer` by the step of its class `base`, and averages by `algorithm`."""

    def __init__(self, maker: str, optimizer: torch.optim.Optimizer, base: type, models: Models,
                 algorithm: str, num_steps_per_communication: int, options: dict[str, Any]):
        runtime = current()
        self.algorithm = algorithm
        row = core.algorithm_named(algorithm)
        self.sums_gradients = row.sums_gradients
        self._row_uses_windows = row.uses_windows
        self.period = num_steps_per_communication
        # Its calls are in no order with the user's, which may lie anywhere in a backward pass.
        self.context = runtime.context.duplicate()
        self._optimizer = weakref.ref(optimizer)
        # A plain step runs without the hooks before and after: those of the whole step run.
        is_hooked = getattr(base.step, "hooked", False)
        self._plain_step = base.step.__wrapped__ if is_hooked else base.step
        is_torchs = base.__module__.startswith(("torch.optim", "bluefog_cpp.torch."))
        self._needs_closure = (issubclass(base, torch.optim.LBFGS) or
                               local_optimizer.asks_for_closure(base))
        # Optimizers of others may call the closure as they like (SAM does, after a step uphill).
        self._reevaluates = self._needs_closure or (not is_torchs and row.allows_reevaluation)
        self._is_stepping = False
        self.is_in_step = False
        """Whether a step is under way, or the last one has failed."""
        self._closure: Callable | None = None
        self._loss = None
        self._skips_local_step = False
        self.skips_steps = False
        """Whether several backward passes come before one step."""
        self._passed_over = 0
        """How many of the next steps do nothing here, as the other ranks have made them."""
        self._steps_in_backward = options.get("step_in_backward", False)
        self.averages_over_nobody = algorithm == "none"
        self.release_windows: Callable[[], None] = lambda: None
        """Forgets the windows that the optimizer has made."""
        self.make_windows: Callable[[], None] | None = None
        """Makes them anew over other ranks; None where it has none."""
        self.average_windows: Callable[[str], None] = lambda _: None
        """Has parameters become their mean, in a call of that name, where it has windows."""
        parameters = parameters_of(models)
        this = weakref.ref(self)
        # Optimizers of others may keep state in a group, which belongs to all of its parameters.
        by_bucket = is_torchs and not self._reevaluates
        own = {id(parameter) for _, parameter in parameters}
        runtime.or_refuse(lambda: check_unshared(runtime, maker, parameters, self.sums_gradients,
                                                 buffers_of(models),
                                                 self._windows_of_others(own)))
        self._retire_others(own)
        free_retired_windows(runtime, maker)
        take_device_of(self.context, (parameter for _, parameter in parameters))
        with made_for(optimizer):
            self._core: core.DistributedOptimizer | None = core.DistributedOptimizer(
                self.context, [list(group["params"]) for group in optimizer.param_groups],
                lambda groups: this()._local_step(groups), parameters, algorithm, self.period,
                by_bucket, self._reevaluates, call_name=maker,
                learning_rate=lambda: local_optimizer.learning_rate_of(this().wrapped),
                moments=local_optimizer.moments_of(optimizer), **options)
        self._end = ""
        self._group_count = len(optimizer.param_groups)
        self.names = {id(parameter): name for name, parameter in parameters}
        """The parameters' names, by their ids."""
        self._parts = ModelParts(models)
        self.models = models
        self._passes = BackwardPasses(self, [parameter for _, parameter in parameters]
                                      if row.counts_passes else [])
        self.number = next(_numbers)
        """The number of this one among those that this process has made."""
        runtime.optimizers.add(self)
        if not (self._row_uses_windows or self.averages_over_nobody):
            runtime.context.note_first_step(0)

    @property
    def core(self) -> "core.DistributedOptimizer":
        if self._core is None:
            raise StateError(f"{self._optimizer()._label}: this optimizer has ended: {self._end}")
        return self._core

    @staticmethod
    def _windows_of_others(parameters: set[int]) -> set[int]:
        """The ids of windows that go with the optimizers that `_retire_others` ends."""
        return {id(window) for other in current().optimizers if other.names.keys() & parameters
                for window in getattr(other._optimizer(), "_own_windows", {}).values()}

    def _retire_others(self, parameters: set[int]) -> None:
        """Whoever runs a notebook's cell again wraps again, while the name still holds the old
        one."""
        for other in current().optimizers_in_order():
            if other.names.keys() & parameters:
                other.drain()
                other.release_windows()
                other._forget("its parameters were wrapped again; use the new one")
                other.context.close()
                current().optimizers.discard(other)

    @property
    def windows_of(self) -> _Context | None:
        """The ranks whose windows a step uses; None where it uses none."""
        if self.make_windows is not None:
            return current().context
        return self.context if self._row_uses_windows else None

    @property
    def wrapped(self) -> torch.optim.Optimizer:
        optimizer: torch.optim.Optimizer | None = self._optimizer()
        assert optimizer is not None  # it holds this object
        return optimizer

    @property
    def passes_over(self) -> bool:
        return self._passed_over > 0

    @property
    def has_ended(self) -> bool:
        return self._core is None

    def _forget(self, reason: str) -> None:
        self._core, self._end = None, reason

    @property
    def communicates_next(self) -> bool:
        return (self.core.step_count + 1) % self.period == 0

    def step(self, closure: Callable | None = None,
             before: Callable[[], _plans.Step | None] = lambda: None):
        """`before` prepares a step that communicates, once gradients are there."""
        loss, plan, self._loss = None, None, None
        if self._passed_over > 0:
            return self._pass_over(closure)
        self._or_refuse(lambda: self._check_closure(closure))
        if self._reevaluates:
            self._closure = closure
        elif closure is not None:
            loss = self._evaluate(closure)
        self._or_refuse(self._unscale)
        try:
            plan = self._prepare(before)
            self._is_stepping = True
            optimizer_step(self.core)
        except (PeerFailure, TimeoutError) as error:
            error.result = self._loss if self._reevaluates else loss
            if plan is not None:
                plan.failed(error)
            raise
        except LateMismatchError as error:  # the step itself is made
            error.result = self._loss if self._reevaluates else loss
            if plan is not None:
                plan.failed(error)
            raise
        except BaseException as error:
            if plan is not None:
                plan.failed(error)
            raise
        finally:
            self._is_stepping = self._skips_local_step = False
            self._closure = None
            self._passes.clear()
        return self._loss if self._reevaluates else loss

    def _pass_over(self, closure: Callable | None) -> Any:
        """A step that the other ranks have made already."""
        self._passes.clear()
        try:
            with torch.enable_grad():
                return None if closure is None else closure()
        finally:
            self._passed_over -= 1
            self.core.step()

    def refuse_step(self, reason: str) -> None:
        if self._passed_over > 0:
            self._passed_over -= 1
        self._passes.clear()
        self.core.refuse_step(reason)

    def _or_refuse(self, check: Callable[[], None]) -> None:
        """`check()`. If it raises, the step counts as refused."""
        core_ = self.core
        try:
            check()
        except Exception as error:
            core_.refuse_step(str(error))
            raise

    def _evaluate(self, closure: Callable) -> Any:
        steps = self.core.step_count
        try:
            with torch.enable_grad():
                return closure()
        except BaseException as error:
            if self.core.step_count == steps:  # else a backward pass has told the others
                self.core.refuse_step(f"rank {self.context.rank}, step: the closure raised "
                                      f"{type(error).__name__}: {error}")
            raise

    def makes_state_only(self) -> bool:
        """Whether torch.distributed.checkpoint calls: it steps an optimizer that has no state yet,
        with zeros, to see what state it will have. Such a step is local."""
        return caller_in_torch("_init_optim_state") is not None

    def local_step(self):
        """The step of the optimizer's own class."""
        return self._plain_step(self._optimizer())

    def zero_grad(self, set_to_none: bool) -> bool:
        """Clears the gradients where the algorithm has its own way to; else False."""
        if not self.sums_gradients:
            self.core.forget_lost_step()
            return False
        self.core.zero_grad(set_to_none)
        return True

    @property
    def counts_passes(self) -> bool:
        """Whether a backward pass now is one of those before a step: not an evaluation within."""
        return not self.has_ended and not self._is_stepping and not self._passed_over

    def count_passes(self, passes: int) -> None:
        """A backward pass has begun; the k-th one before a step makes that step communicate."""
        if passes == self.period and self.core.step_count % self.period == 0:
            self.skips_steps = self.period > 1
            self.core.skip_steps(self.period - 1)

    def drain(self) -> None:
        self.core.drain()

    def finish(self) -> None:
        self.drain()
        self._check_models()

    def carried(self) -> dict[str, Any] | None:
        """For `resume`; None where the optimizer has ended."""
        return carried_by(self.algorithm, self._core, self.period if self.sums_gradients else 1,
                          (self.context.rank, self.context.size))

    def check_carried(self, carried: Any) -> None:
        """Raises InvalidArgument for what `resume` cannot go on from."""
        check_carried(f"{self._optimizer()._label}, load_state_dict", self.algorithm, self.core,
                      carried, (self.context.rank, self.context.size))

    def resume(self, carried: dict[str, Any]) -> None:
        resume(self.algorithm, self.core, carried)

    def move_to(self, context: _Context, joins: bool) -> int:
        """Collective over the ranks of `context`, which are left or new: goes on over them.

        joins: whether this rank is new. Returns the lowest of the ranks that are furthest.
        """
        optimizer = self._optimizer()
        take_device_of(context, (parameter for group in optimizer.param_groups
                                 for parameter in group["params"]))
        own = self.core.step_count
        with made_for(optimizer):
            furthest = self.core.move_to(context)
        self._passed_over += 0 if joins else self.core.step_count - own
        self.context = context
        self._passes.clear()
        optimizer.__dict__["_label"] = re.sub(r"^rank \d+", f"rank {context.rank}",
                                              optimizer._label)
        return furthest

    def end_where_lost(self, reason: str) -> None:
        """Where ranks are lost, and it cannot go on over the others."""
        self.release_windows()
        self._forget(f"ranks were lost, and {reason}; wrap the optimizer again on all ranks that "
                     "are left")
        self.context.close()

    def close(self) -> None:
        self.context.close()
        self.release_windows()
        self._forget("shutdown ended it; after init() wrap it, or the plain optimizer, again")

    def abandon(self) -> None:
        if self._core is not None:
            self._core.abandon()
        self.context.abandon()

    def _prepare(self, before) -> _plans.Step | None:
        communicates = self.communicates_next
        try:
            self._check_models()
            windows_of = self.windows_of
            if windows_of is not None or self.averages_over_nobody:  # who would tell it
                (windows_of or self.context).check_revoked(f"step {self.core.step_count}")
            plan = before() if communicates else None
            if plan is not None:
                plan.run(lambda: self.core.set_next_plan(plan.plan, plan.checked))
            return plan
        except Exception as error:
            self.core.refuse_step(str(error))
            raise

    def _check_models(self) -> None:
        groups = len(self._optimizer().param_groups)
        if groups != self._group_count:
            raise StateError(
                f"rank {self.context.rank}: expected the {self._group_count} groups that the "
                f"optimizer was wrapped with, found {groups}; wrap it again")
        changed = self._parts.why_changed()
        if changed:
            raise StateError(f"rank {self.context.rank}, {changed}")

    def _check_closure(self, closure) -> None:
        where = f"rank {self.context.rank}, step"
        if closure is not None and not callable(closure):
            raise ArgumentTypeError(f"{where}: closure: expected a function or None, found "
                                    f"{_arguments.shown(closure)}")
        if self._needs_closure and closure is None:
            raise InvalidArgument(f"{where}: closure: expected a function, which "
                                  f"{type(self._optimizer()).__name__} calls, found None")

    def _unscale(self) -> None:
        """GradScaler leaves this to us. A rank that found an infinity makes no local step, but
        averages all the same, so that no other rank waits for it."""
        optimizer = self._optimizer()
        scale = optimizer.__dict__.get("grad_scale")
        found_inf = optimizer.__dict__.get("found_inf")
        if scale is not None and self._steps_in_backward:
            raise UnsupportedError(
                f"rank {self.context.rank}: GradScaler expects to unscale gradients before they "
                "are used, found an optimizer that used them in the backward pass "
                "(step_in_backward)")
        if scale is not None:
            gradients = [parameter.grad for group in optimizer.param_groups
                         for parameter in group["params"] if parameter.grad is not None]
            if gradients:
                torch._foreach_mul_(gradients, float(1 / scale))
        self._skips_local_step = found_inf is not None and float(found_inf) > 0

    def _local_step(self, parameters_by_group: list[list[torch.Tensor]]) -> None:
        """The user's optimizer, for these parameters only."""
        if self._skips_local_step:
            return
        optimizer = self._optimizer()
        groups = optimizer.param_groups
        taken = [(group, parameters) for group, parameters in zip(groups, parameters_by_group)
                 if parameters]
        before = [(group, group["params"]) for group, _ in taken]
        hidden: dict = {name: optimizer.__dict__.pop(name) for name in ("grad_scale", "found_inf")
                        if name in optimizer.__dict__}
        try:
            optimizer.param_groups = [group for group, _ in taken]
            for group, parameters in taken:
                group["params"] = parameters
            if self._closure is not None:
                self._loss = self._plain_step(optimizer, self._closure)
            else:
                self._plain_step(optimizer)
        finally:
            for group, parameters in before:
                group["params"] = parameters
            optimizer.param_groups = groups
            optimizer.__dict__.update(hidden)


@ranged
def optimizer_step(algorithm: core.DistributedOptimizer) -> None:
    """A step of the core's."""
    algorithm.step()
