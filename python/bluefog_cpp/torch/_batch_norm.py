"""Batch normalisation over the batches of all ranks."""

from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from bluefog_cpp import _arguments
from bluefog_cpp._arguments import checked
from bluefog_cpp._extension import core
from bluefog_cpp.errors import ArgumentTypeError, InvalidArgument, UnsupportedError
from bluefog_cpp.torch._devices import take_device_of
from bluefog_cpp.torch._runtime import Runtime, current

_CALL = "SyncBatchNorm"


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation as if the batches of all ranks were one, forward and backward:

        y = weight (x - μ) / sqrt(σ² + eps) + bias

    with μ and σ² per channel over every rank's batch.

    Inputs have shape [N, C, …], on the CPU or on all ranks on a GPU (as `use_device`, which the
    first one calls where nobody has), of float16, bfloat16, float32 or float64; batches may
    differ in size, and be empty on some ranks. Statistics of half precision are float32. The
    running statistics are the same on all ranks; gradients of weight and bias are those of this
    rank's batch, for the optimizer to average.

    In training mode, and without running statistics always, forward and backward are collective:
    all ranks run the same layers, after `init`. In evaluation mode nothing communicates. Arguments
    as those of torch.nn.SyncBatchNorm, which is for GPUs alone and has process groups besides.
    Differentiable once.

    Cost of C channels: forward one all-gather of 8 (2C + 1) bytes, on a GPU one of 16 C bytes there
    and one of 8 by the hosts; backward one all-reduce of 16 C bytes.
    Raises InvalidArgument for an input that is not of shape [N, num_features, …], or on all ranks
    where there are fewer than 2 elements for each channel, UnsupportedError for a process group,
    PeerFailure where another rank's input was refused.
    Source: the parallel variance of Chan, Golub and LeVeque, 1979.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
                 affine: bool = True, track_running_stats: bool = True, process_group: Any = None,
                 device: Any = None,
                 dtype: torch.dtype | None = None) -> None:
        _refuse_group(process_group)
        super().__init__(
            checked(_CALL, "num_features", _arguments.at_least(1), num_features),
            checked(_CALL, "eps", _arguments.number, eps),
            checked(_CALL, "momentum", _arguments.weight, momentum),
            checked(_CALL, "affine", _arguments.switch, affine),
            checked(_CALL, "track_running_stats", _arguments.switch, track_running_stats),
            device=device, dtype=dtype)

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The normalised input, of the same shape and dtype."""
        if not self.training and self.running_mean is not None:
            self._check_input_dim(input)
            return torch.nn.functional.batch_norm(input, self.running_mean, self.running_var,
                                                  self.weight, self.bias, False, 0.0, self.eps)
        runtime = current()
        runtime.or_refuse(lambda: self._check_input_dim(input))
        take_device_of(runtime.context, [input])
        statistics = core.batch_statistics(runtime.context, input)
        if self.training and self.running_mean is not None and self.running_var is not None:
            core.update_running(self.running_mean, self.running_var, statistics,
                                self._count_batch())
        normalized: torch.Tensor = _Normalization.apply(  # type: ignore[no-untyped-call]  # torch's
            input, self.weight, self.bias, statistics, self.eps, runtime)
        return normalized

    @classmethod
    def convert_sync_batchnorm(cls, module: torch.nn.Module,
                               process_group: Any = None) -> torch.nn.Module:
        """The module with every batch normalisation in it replaced by this one, which takes over
        its parameters, running statistics and options; a batch normalisation itself comes back as a
        new module. Before the optimizer is made.

        process_group: None; there is one group, that of `init`.
        """
        _refuse_group(process_group)
        checked("convert_sync_batchnorm", "module",
                _arguments.instance_of(torch.nn.Module, "a torch.nn.Module"), module)
        converted = module
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            converted = cls._taking_over(module)
        for name, child in module.named_children():
            converted.add_module(name, cls.convert_sync_batchnorm(child))
        return converted

    @classmethod
    def _taking_over(cls, old: _BatchNorm) -> "SyncBatchNorm":
        new = cls(old.num_features, old.eps, old.momentum, old.affine, old.track_running_stats)
        if old.affine:
            new.weight, new.bias = old.weight, old.bias
        new.running_mean, new.running_var = old.running_mean, old.running_var
        new.num_batches_tracked = old.num_batches_tracked
        new.training = old.training
        if hasattr(old, "qconfig"):
            new.qconfig = old.qconfig
        return new

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if not isinstance(input, torch.Tensor):
            raise ArgumentTypeError(
                f"{_arguments.place(_CALL)}: input: expected a torch.Tensor, found "
                f"{_arguments.described(input)}")
        if input.dim() < 2 or input.size(1) != self.num_features:
            raise InvalidArgument(
                f"{_arguments.place(_CALL)}: input: expected shape [N, {self.num_features}, "
                f"...], found {list(input.shape)}")

    def _count_batch(self) -> float:
        """The share of the new batch in the running statistics."""
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        if self.momentum is not None:
            return self.momentum
        # Batches are counted wherever there are running statistics.
        return 1.0 / float(self.num_batches_tracked)  # type: ignore[arg-type]  # is counted


class _Normalization(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, weight: torch.Tensor | None,
                bias: torch.Tensor | None, statistics: core.BatchStatistics, eps: float,
                runtime: Runtime) -> torch.Tensor:
        ctx.save_for_backward(input, weight)
        ctx.statistics, ctx.eps, ctx.runtime = statistics, eps, runtime
        return core.normalize(input, statistics, weight, bias, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        input, weight = ctx.saved_tensors
        of_input, of_weight, of_bias = core.batch_norm_gradients(
            ctx.runtime.context, grad_output, input, ctx.statistics, weight, ctx.eps,
            ctx.needs_input_grad[0])
        if weight is None:
            return of_input, None, None, None, None, None
        return of_input, of_weight.to(weight.dtype), of_bias.to(weight.dtype), None, None, None


def _refuse_group(process_group: Any) -> None:
    if process_group is not None:
        raise UnsupportedError(
            f"{_arguments.place(_CALL)}: process_group: expected None, for the ranks of "
            f"init, found {_arguments.shown(process_group)}")
