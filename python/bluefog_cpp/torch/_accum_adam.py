"""Adam and AdamW whose moments stand still for a few steps."""

import math
from collections.abc import Callable
from typing import Any

import torch

from bluefog_cpp import _arguments
from bluefog_cpp.errors import ArgumentTypeError, InvalidArgument, UnsupportedError


class AccumAdam(torch.optim.Optimizer):
    """Adam with moments m and v that change once in s steps (`accumulation`), by the mean ḡ of the
    gradients g of these:

        m' = β₁ m + (1 - β₁) g;  v' = β₂ v + (1 - β₂) g²;  x ← x - γ m̂' / (√v̂' + ε)
        after s steps:  m ← β₁ m + (1 - β₁) ḡ;  v ← β₂ v + (1 - β₂) ḡ²

    with m̂' and v̂' corrected for their bias by 1 - β^k, k the number of changes with the next one.
    Gradients of several steps make a larger batch for the moments, as those of several ranks do in
    parallel SGD, while parameters move and are averaged in each. s = 1 is Adam, bit for bit
    (torch's with foreach=False).

    lr, betas, eps, weight_decay: as of torch.optim.Adam; the authors take betas (0.9, 0.98) for
    language models, and accumulation 4 to 8. Wrap it as any optimizer of torch's.
    Memory: three copies of the parameters, one more than Adam's. Source: arXiv 2410.11998.
    """

    decouples = False

    def __init__(self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 0.0, *, accumulation: int = 4):
        call = type(self).__name__
        for name, value in (("lr", lr), ("eps", eps), ("weight_decay", weight_decay)):
            if _arguments.checked(call, name, _arguments.number, value) < 0:
                raise InvalidArgument(f"{_arguments.place(call)}: {name}: expected 0 or more, "
                                      f"found {value}")
        if not isinstance(betas, tuple | list) or len(betas) != 2:
            raise ArgumentTypeError(f"{_arguments.place(call)}: betas: expected two numbers, found "
                                    f"{_arguments.shown(betas)}")
        for beta in betas:
            if not 0 <= _arguments.checked(call, "betas", _arguments.number, beta) < 1:
                raise InvalidArgument(f"{_arguments.place(call)}: betas: expected numbers from 0 "
                                      f"to below 1, found {beta}")
        accumulation = _arguments.checked(call, "accumulation", _arguments.at_least(1),
                                          accumulation)
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps,
                                  "weight_decay": weight_decay, "accumulation": accumulation})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """A step. Returns the closure's loss. Raises UnsupportedError for sparse gradients."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)
        return loss

    def _move(self, x: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        if gradient.is_sparse:
            raise UnsupportedError(f"{_arguments.place(type(self).__name__)}: expected dense "
                                   "gradients, found sparse ones")
        state = self.state[x]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32)
            for name in ("exp_avg", "exp_avg_sq", "gradient_sum"):
                state[name] = torch.zeros_like(x, memory_format=torch.preserve_format)
        state["step"] += 1
        step, period = int(state["step"].item()), group["accumulation"]
        if group["weight_decay"] != 0:
            if self.decouples:
                x.mul_(1 - group["lr"] * group["weight_decay"])
            else:
                gradient = gradient.add(x, alpha=group["weight_decay"])
        sums = state["gradient_sum"].add_(gradient)
        ends = step % period == 0
        mean = (gradient if period == 1 else sums / period) if ends else None
        m, v = self._moments(state, gradient, group["betas"])
        self._move_by(x, m, v, -(-step // period), group)
        if mean is not None:
            state["exp_avg"], state["exp_avg_sq"] = self._moments(state, mean, group["betas"])
            sums.zero_()

    @staticmethod
    def _moments(state: dict[str, torch.Tensor], gradient: torch.Tensor,
                 betas: tuple[float, float]) -> tuple[torch.Tensor, torch.Tensor]:
        """The moments with one more gradient."""
        return (state["exp_avg"].lerp(gradient, 1 - betas[0]),
                (state["exp_avg_sq"] * betas[1]).addcmul_(gradient, gradient, value=1 - betas[1]))

    @staticmethod
    def _move_by(x: torch.Tensor, m: torch.Tensor, v: torch.Tensor, changes: int,
                 group: dict[str, Any]) -> None:
        beta1, beta2 = group["betas"]
        root = math.sqrt(1 - beta2**changes)
        x.addcdiv_(m, (v.sqrt() / root).add_(group["eps"]),
                   value=-(group["lr"] / (1 - beta1**changes)))


class AccumAdamW(AccumAdam):
    """`AccumAdam` with decoupled decay of weights, x ← (1 - γ λ) x before the step, as AdamW has
    it; where parameters are averaged after the step, before they are. s = 1 is torch's AdamW, bit
    for bit (with foreach=False)."""

    decouples = True

    def __init__(self, params: Any, lr: float = 1e-3, betas: tuple[float, float] = (0.9, 0.999),
                 eps: float = 1e-8, weight_decay: float = 1e-2, *, accumulation: int = 4):
        super().__init__(params, lr, betas, eps, weight_decay, accumulation=accumulation)
