"""Gossip in a program that stays one of torch's DistributedDataParallel."""

from typing import Any

import torch
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.nn.parallel import DistributedDataParallel

from bluefog_cpp import _arguments
from bluefog_cpp.errors import ArgumentTypeError, InvalidArgument, NotInitialized
from bluefog_cpp.torch._algorithms import Graphs, row_named, wrap_by_name
from bluefog_cpp.torch._parameters import broadcast_parameters
from bluefog_cpp.torch._runtime import Runtime, current

_CALL = "decentralize"
_DDP = "expected a torch.nn.parallel.DistributedDataParallel"
_SHARDED = ("FullyShardedDataParallel", "FSDPModule")
# Wrappers around the optimizer that steps, each with the attribute that it lies in.
_AROUND_OPTIMIZERS = {"AcceleratedOptimizer": "optimizer", "LightningOptimizer": "_optimizer",
                      "PostLocalSGDOptimizer": "optim"}


def decentralize(model: torch.nn.Module, optimizer: torch.optim.Optimizer,
                 algorithm: str = "adapt_then_combine", *, schedule: Graphs | None = None,
                 graphs: Graphs | None = None, num_steps_per_communication: int = 1,
                 global_period_rounds: int = 6, momentum: float = 0.9, bucket_bytes: int = 0,
                 row_sums: str = "one", compression: str | None = None,
                 numbers: dict[str, float] | None = None,
                 root_rank: int | None = 0) -> Any:
    """Collective. Makes a DDP program decentralized: from now on DDP leaves gradients to each rank
    and sends no buffers, and the optimizer that is returned averages parameters by `algorithm`. All
    else of the program stays: `no_sync`, schedulers, GradScaler, checkpoints.

    model: over the ranks of `init`, without a communication hook of its own, or with torch's
    `noop_hook`. It may have trained already. A single rank may have any module: frameworks leave
    DDP away then.
    optimizer: a plain one, over parameters of the model.
    root_rank: the rank whose parameters and buffers all start from; None where each rank keeps its
    own, in a run that resumes.
    The others are as of `DecentralizedOptimizer`. Algorithms that use gradients in the backward
    pass are refused, since DDP does.

    Model and optimizer are checked before anything changes. Raises NotInitialized before `init`,
    ArgumentTypeError for another model than DDP's, InvalidArgument for one of other ranks, with
    another communication hook, or whose parameters are not whole on each rank.
    """
    runtime = _runtime()
    runtime.argument(_CALL, "model", _replicated(runtime.size), model)
    ddp = model if isinstance(model, DistributedDataParallel) else None
    module, ignored = (model, set()) if ddp is None else (ddp.module, ddp.parameters_to_ignore)
    if ddp is not None:
        runtime.or_refuse(lambda: _check_alone(runtime, ddp))
    runtime.argument(_CALL, "optimizer", _plain, optimizer)
    runtime.or_refuse(lambda: _check_held(module, ignored, optimizer))
    runtime.argument(_CALL, "algorithm", _averages_parameters, algorithm)
    root = runtime.argument(_CALL, "root_rank", _root(runtime.size), root_rank)
    if root is not None:
        broadcast_parameters([(name, tensor) for name, tensor in _state_of(module)
                              if name not in ignored], root)
    wrapped = wrap_by_name(_CALL, optimizer, module, algorithm, schedule, graphs,
                           num_steps_per_communication, row_sums,
                           global_period_rounds=global_period_rounds, momentum=momentum,
                           bucket_bytes=bucket_bytes, compression=compression,
                           numbers=numbers)
    if ddp is not None:
        _leave_alone(ddp)
    return wrapped


def _leave_alone(model: DistributedDataParallel) -> None:
    """DDP sends nothing of its own from now on."""
    model.broadcast_buffers = False
    if not model._comm_hooks:
        model.register_comm_hook(None, noop_hook)


def _runtime() -> Runtime:
    try:
        return current()
    except NotInitialized as error:
        raise NotInitialized(
            f"{_CALL}: {error}; after init_process_group it joins the ranks of torch's default "
            "group by itself") from None


def _state_of(module: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [*module.named_parameters(), *module.named_buffers()]


def _classes(value: Any) -> set[str]:
    return {kind.__name__ for kind in type(value).__mro__}


def _replicated(size: int) -> _arguments.Check:
    """A check for DDP's modules, whose parameters are whole on each of `size` ranks."""

    def check(model: Any) -> torch.nn.Module:
        if not isinstance(model, torch.nn.Module):
            raise ArgumentTypeError(f"{_DDP}, found {_arguments.described(model)}")
        if not isinstance(model, DistributedDataParallel):
            _check_not_around(model)
            if size > 1:
                raise ArgumentTypeError(
                    f"{_DDP}, found {type(model).__name__}; write model = "
                    "DistributedDataParallel(model) before, or leave DDP away: "
                    "DecentralizedOptimizer(optimizer, model) takes any module")
        return model

    return check


def _check_not_around(model: torch.nn.Module) -> None:
    name = type(model).__name__
    if not _classes(model).isdisjoint(_SHARDED):
        raise InvalidArgument(f"{_DDP}, found {name}, which leaves a part of the parameters to "
                               "each rank; averages with neighbours need whole ones")
    inner = next((place for place, part in model.named_modules()
                  if isinstance(part, DistributedDataParallel)), None)
    if inner is not None:
        raise ArgumentTypeError(f"{_DDP}, found {name} around one; pass its part {inner!r}")


def _check_alone(runtime: Runtime, model: DistributedDataParallel) -> None:
    """DDP's ranks are ours, and nobody has told it to treat gradients in another way."""
    place = f"{_arguments.place(_CALL)}: model"
    group = model.process_group
    if (group.rank(), group.size()) != (runtime.rank, runtime.size):
        raise InvalidArgument(
            f"{place}: expected DDP over the ranks of init, of which this is rank {runtime.rank} "
            f"of {runtime.size}, found a process group in which it is rank {group.rank()} of "
            f"{group.size()}; make DDP over the default group")
    if getattr(model, "_delay_all_reduce_params", None):
        raise InvalidArgument(
            f"{place}: expected gradients that a communication hook sees, found DDP made with "
            "delay_all_reduce_named_params, which averages some past it; leave the argument away")
    hook = _hook_of(model)
    if hook and not _is_noop(model):
        raise InvalidArgument(
            f"{place}: expected DDP without a communication hook, found {hook}; leave its "
            "register_comm_hook (or mixed_precision) away: DDP takes one hook, and torch's "
            "noop_hook is the one that leaves gradients alone")


def _hook_of(model: DistributedDataParallel) -> str:
    """The name of the communication hook; empty where there is none. torch lists its builtin ones
    in what it logs alone."""
    if model._comm_hooks:
        hook = model._comm_hooks[-1][0]
        return str(getattr(hook, "__qualname__", type(hook).__name__))
    return str(model._get_ddp_logging_data().get("comm_hook") or "")


def _is_noop(model: DistributedDataParallel) -> bool:
    return [hook for hook, _ in model._comm_hooks] == [noop_hook]


def _plain(optimizer: Any) -> Any:
    """A check for an optimizer that steps whole parameters by itself. `wrap` looks at the rest."""
    name, kinds = type(optimizer).__name__, _classes(optimizer)
    if "ZeroRedundancyOptimizer" in kinds:
        raise InvalidArgument(
            f"expected an optimizer that steps all parameters on each rank, found {name}, which "
            "steps a part and takes the others' results; pass the optimizer that it was made of")
    for kind, attribute in _AROUND_OPTIMIZERS.items():
        if kind in kinds:
            inside = type(getattr(optimizer, attribute)).__name__
            raise InvalidArgument(
                f"expected a plain optimizer, found {name} around {inside}; write "
                f"optimizer.{attribute} = decentralize(model, optimizer.{attribute}, ...)")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ArgumentTypeError(
            f"expected a torch.optim.Optimizer, found {_arguments.described(optimizer)}")
    return optimizer


def _check_held(module: torch.nn.Module, ignored: set[str],
                optimizer: torch.optim.Optimizer) -> None:
    """Parameters that DDP leaves alone differ between ranks on purpose."""
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    for place, group in enumerate(optimizer.param_groups):
        for number, parameter in enumerate(group["params"]):
            name = names.get(id(parameter))
            if name is None:
                raise InvalidArgument(
                    f"{_arguments.place(_CALL)}: optimizer: expected parameters of the model, "
                    f"found one of shape {list(parameter.shape)} at place {number} of group "
                    f"{place} that is not")
            if name in ignored:
                raise InvalidArgument(
                    f"{_arguments.place(_CALL)}: optimizer: expected parameters that DDP averages, "
                    f"found '{name}', which it was told to ignore; give those an optimizer of "
                    "their own")


def _averages_parameters(algorithm: Any) -> None:
    """A check for algorithms that leave the backward pass to DDP."""
    row = row_named(algorithm)
    if row.sums_gradients:
        raise InvalidArgument(
            f"expected one that averages parameters, found {row.name}: what DDP does by itself; "
            "leave decentralize away, and for bytes by this package register "
            "bluefog_cpp.torch.ddp_comm_hooks.allreduce_hook")


def _root(size: int) -> _arguments.Check:
    """A check for a rank, or None."""

    def check(value: Any) -> int | None:
        return None if value is None else _arguments.rank(size)(value)

    return check
