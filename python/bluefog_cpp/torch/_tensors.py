"""Between the user's tensors and what the core takes: contiguous ones on the CPU."""

import torch

from bluefog_cpp._extension import core


def elements(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself where the core can take it, else a copy that it can take."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"expected a torch.Tensor, found {type(tensor).__name__}")
    if tensor.is_neg():
        tensor = tensor.detach().resolve_neg()
    if tensor.is_cpu and tensor.layout == torch.strided:
        return tensor if tensor.is_contiguous() else tensor.detach().contiguous()
    if tensor.layout == torch.strided and tensor.device.type != "meta":
        return tensor.detach().cpu().contiguous()
    return tensor  # the core says what is wrong with it


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A fresh tensor of the same elements, for a call that works in place."""
    source = elements(tensor)
    return core.fresh_like(source).copy_(source.detach()) if source is tensor else source


def like(result: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """`result` on the device of `tensor`."""
    return result if result.device == tensor.device else result.to(tensor.device)


def store(result: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Puts the result of a call into `tensor`, of which `elements` may have been a copy."""
    if result is tensor:
        core.note_change(tensor)
    else:
        tensor.detach().copy_(result)
    return tensor
