"""The argument `model` of the functions that wrap, and whether it holds its parameters still."""

from collections.abc import Iterable, Iterator
from operator import is_
from typing import Any

import torch

from bluefog_cpp import _arguments
from bluefog_cpp.errors import ArgumentTypeError, InvalidArgument

Models = torch.nn.Module | Iterable[torch.nn.Module]


def models_of(models: Any) -> Models:
    """The argument `model` of the functions that wrap: a module, or a list of modules."""
    if isinstance(models, torch.nn.Module):
        return models
    if isinstance(models, (str, bytes, torch.Tensor)) or not isinstance(models, Iterable):
        raise ArgumentTypeError("expected a torch.nn.Module or several, found "
                                f"{_arguments.described(models)}")
    several: list[torch.nn.Module] = list(models)
    wrong = [model for model in several if not isinstance(model, torch.nn.Module)]
    if wrong:
        raise ArgumentTypeError("expected a torch.nn.Module or several, found "
                                f"{_arguments.described(wrong[0])} among them")
    if not several:
        raise InvalidArgument("expected a torch.nn.Module or several, found none")
    return several


def parameters_of(models: Models) -> list[tuple[str, torch.Tensor]]:
    """The parameters with their names, which start with the model's place where there are
    several."""
    if isinstance(models, torch.nn.Module):
        return [(_arguments.utf8(name), parameter) for name, parameter in models.named_parameters()]
    return [(_arguments.utf8(f"{place}.{name}"), parameter) for place, model in enumerate(models)
            for name, parameter in model.named_parameters()]


def buffers_of(models: Models) -> list[tuple[str, torch.Tensor]]:
    """The buffers with their names, as `parameters_of` has those of parameters."""
    if isinstance(models, torch.nn.Module):
        return [(_arguments.utf8(name), buffer) for name, buffer in models.named_buffers()]
    return [(_arguments.utf8(f"{place}.{name}"), buffer) for place, model in enumerate(models)
            for name, buffer in model.named_buffers()]


def check_values(models: Models) -> None:
    """Parameters of lazy modules have no values, and no shape, before a forward pass."""
    for name, parameter in parameters_of(models):
        if torch.nn.parameter.is_lazy(parameter):
            raise InvalidArgument(
                f"parameter '{name}': expected values, found that of a lazy module without any; "
                "make a forward pass before the optimizer is wrapped")


class ModelParts:
    """The parameters of models by their names, as when this object was made."""

    def __init__(self, models: torch.nn.Module | list[torch.nn.Module]):
        self._models = models
        self._parameters = dict(self._named())
        self._parts = self._taken()

    def why_changed(self) -> str:
        """The part that lies where another was, for a message; empty if none does. Parts may be
        added to the model, or taken from it."""
        # A model's parts are as many as its modules: their names are made for the message alone.
        if all(_holds(module._parameters, *parameters) and _holds(module._modules, *children)
               for module, parameters, children in self._parts):
            return ""
        found = dict(self._named())
        has_new_names = not found.keys() <= self._parameters.keys()
        for name, parameter in self._parameters.items():
            if found[name] is not parameter if name in found else has_new_names:
                what = "another one" if name in found else "none"
                return (f"parameter '{name}': expected the module to hold the parameter that it "
                        f"held when the optimizer was wrapped, found {what} (a parametrization or "
                        "a pruning that was added or removed, load_state_dict(assign=True), a "
                        "submodule in its place?); wrap the optimizer again")
        self._parts = self._taken()
        return ""

    def _modules(self) -> Iterator[tuple[str, torch.nn.Module]]:
        if isinstance(self._models, torch.nn.Module):
            yield from self._models.named_modules()
        else:
            for place, model in enumerate(self._models):
                yield from model.named_modules(prefix=str(place))

    def _named(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Tied ones by each of their names."""
        for prefix, module in self._modules():
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    yield f"{prefix}.{name}" if prefix else name, parameter

    def _taken(self) -> list[tuple[torch.nn.Module, Any, Any]]:
        return [(module, _contents(module._parameters), _contents(module._modules))
                for _, module in self._modules()]


def _contents(items: dict[str, Any]) -> tuple[list[str], list[Any]]:
    return list(items), list(items.values())


def _holds(items: dict[str, Any], names: list[str], values: list[Any]) -> bool:
    return list(items) == names and all(map(is_, items.values(), values))
