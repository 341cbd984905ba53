"""The layers of a sequential model on one rank: all keep their place, those of other stages have no
memory."""

import io
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from bluefog_cpp.errors import InvalidArgument
from bluefog_cpp.pipeline._cache import FrozenOutputs

_STATE_TAG = 1
# Messages on their way, with the tensors that they send.
Sends = list[tuple[dist.Work | None, torch.Tensor]]


class Layers:
    """Raises InvalidArgument for a model that no pipeline takes."""

    def __init__(self, model: nn.Module) -> None:
        if not isinstance(model, nn.Sequential):
            raise InvalidArgument("ElasticPipeline: expected a model that is a sequence "
                                  f"(torch.nn.Sequential), found a {type(model).__name__}")
        self.model = model
        self.frozen = 0
        self._trainable = {name for name, p in model.named_parameters() if p.requires_grad}
        self._shapes = {name: tensor.shape for name, tensor in self._all_tensors()}
        self._check()

    def _all_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        yield from self.model.named_parameters(remove_duplicate=False)
        yield from self.model.named_buffers(remove_duplicate=False)

    def _check(self) -> None:
        owners: dict[int, str] = {}
        dtypes: dict[torch.dtype, str] = {}
        for name, tensor in self._all_tensors():
            layer = owners.setdefault(id(tensor), name)
            if layer.split(".")[0] != name.split(".")[0]:
                raise InvalidArgument("ElasticPipeline: expected layers that share no tensor, "
                                      f"found {name} to be {layer}")
            if name in self._trainable:
                dtypes.setdefault(tensor.dtype, name)
        if len(dtypes) > 1:
            raise InvalidArgument("ElasticPipeline: expected parameters of one dtype, found "
                                  + ", ".join(f"{name}: {dtype}" for dtype, name in dtypes.items()))

    def __len__(self) -> int:
        return len(self.model)

    def statement(self) -> list[str]:
        """One line for each tensor, to be compared between ranks."""
        return [f"{name} {tensor.dtype} {list(tensor.shape)}"
                for name, tensor in self._all_tensors()]

    def sizes(self) -> list[float]:
        """The layers' numbers of parameters."""
        return [float(sum(self._shapes[f"{i}.{name}"].numel()
                          for name, _ in self.model[i].named_parameters()))
                for i in range(len(self))]

    def tensors(self, layer: int) -> list[tuple[str, torch.Tensor]]:
        """Parameters, then buffers, by their names in the model."""
        module = self.model[layer]
        found = [*module.named_parameters(), *module.named_buffers()]
        return [(f"{layer}.{name}", tensor) for name, tensor in found]

    def trained(self, layer: int) -> list[tuple[str, nn.Parameter]]:
        """Parameters that are to be trained and are not frozen."""
        if layer < self.frozen:
            return []
        return [(f"{layer}.{name}", parameter)
                for name, parameter in self.model[layer].named_parameters()
                if f"{layer}.{name}" in self._trainable]

    def freeze(self, frozen: int, optimizer: torch.optim.Optimizer) -> None:
        """The first so many layers have no gradients from now on, and no state."""
        for layer in range(self.frozen, frozen):
            for _, parameter in self.trained(layer):
                parameter.grad = None
                parameter.requires_grad_(False)
                optimizer.state.pop(parameter, None)
        self.frozen = frozen

    def drop(self, layer: int, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Lets go of the memory of a layer, and of its parameters' state."""
        for _, tensor in self.tensors(layer):
            tensor.grad = None
            tensor.data = torch.empty(0, dtype=tensor.dtype)
            if optimizer is not None:
                optimizer.state.pop(tensor, None)

    def send(self, layer: int, to: int, optimizer: torch.optim.Optimizer) -> Sends:
        """Sends tensors and state."""
        state = [dict(optimizer.state[tensor]) if tensor in optimizer.state else {}
                 for _, tensor in self.tensors(layer)]
        stream = io.BytesIO()
        torch.save(state, stream)
        packed = torch.frombuffer(bytearray(stream.getvalue()), dtype=torch.uint8)
        parts = [torch.tensor([packed.numel()]), packed,
                 *(tensor.detach().contiguous() for _, tensor in self.tensors(layer))]
        return [(dist.isend(part, to, tag=_STATE_TAG), part) for part in parts]

    def receive(self, layer: int, source: int, optimizer: torch.optim.Optimizer) -> None:
        """Makes room for a layer, and fills it."""
        size = torch.empty(1, dtype=torch.int64)
        dist.recv(size, source, tag=_STATE_TAG)
        packed = torch.empty(int(size), dtype=torch.uint8)
        dist.recv(packed, source, tag=_STATE_TAG)
        states = torch.load(io.BytesIO(packed.numpy().tobytes()), weights_only=True)
        for (name, tensor), state in zip(self.tensors(layer), states):
            tensor.data = torch.empty(self._shapes[name], dtype=tensor.dtype)
            dist.recv(tensor.detach(), source, tag=_STATE_TAG)
            optimizer.state.pop(tensor, None)
            if state:
                optimizer.state[tensor] = state


class _Cut(torch.autograd.Function):
    """The second argument, through which no gradient goes on: that of the first one is zero."""

    @staticmethod
    def forward(ctx: Any, inputs: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(inputs)
        return outputs.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, None]:
        inputs, = ctx.saved_tensors
        return torch.zeros_like(inputs), None


def _cut(inputs: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
    result: torch.Tensor = _Cut.apply(inputs, outputs)  # type: ignore[no-untyped-call]
    return result


class StageLayers(nn.Module):
    """The layers of one stage, of which the first `frozen` have no backward pass. kept: of a first
    stage, their outputs that a cache has."""

    def __init__(self, layers: list[nn.Module], frozen: int,
                 kept: FrozenOutputs | None = None) -> None:
        super().__init__()
        self._kept = kept
        self.layers = nn.ModuleList(layers)
        self.frozen = frozen

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        values = inputs
        # torch's stages find out shapes by a run on zeros, which is without gradients.
        kept = self._kept if torch.is_grad_enabled() else None
        with torch.no_grad():
            if kept is not None and kept.is_asked:
                values = kept.of(inputs)
            else:
                for layer in list(self.layers)[:self.frozen]:
                    values = layer.eval()(values)
        if self.frozen and torch.is_grad_enabled():
            # torch's stages hand a gradient back whether it is needed or not.
            values = _cut(inputs, values) if inputs.requires_grad else values
        for layer in list(self.layers)[self.frozen:]:
            values = layer(values)
        if torch.is_grad_enabled() and not values.requires_grad:
            values.requires_grad_()
        # torch's stages compare strides with those of a run without memory, which may differ.
        return values.contiguous()
