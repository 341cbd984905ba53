"""The CUDA device on which calls take tensors."""

from collections.abc import Iterable
from typing import Any

import torch

from bluefog_cpp._arguments import checked, shown
from bluefog_cpp._extension import core
from bluefog_cpp.errors import ArgumentTypeError, InvalidArgument, UnsupportedError
from bluefog_cpp.torch._runtime import current


def use_device(device: int | str | torch.device | None = None) -> None:
    """Collective. Calls then take tensors on that CUDA device as they are, ordered by torch's
    current stream; without it they are copied to the CPU and back.

    device: each rank's own; default: torch's current one. Goes by NCCL; where that is missing or
    refuses, by copies between the devices of one host, else through the host's memory; rank 0 logs
    which. Wrapping an optimizer of a model on a GPU, and
    `broadcast_parameters` of one, do this where it was not done.

    Raises UnsupportedError, which says what is missing, where there is no GPU, PeerFailure on the
    other ranks; StateError a second time.
    """
    runtime = current()
    index = runtime.or_refuse(lambda: _index_of(runtime.rank, device))
    runtime.context.use_device(index)


def _index_of(rank: int, device: int | str | torch.device | None) -> int:
    index = checked("use_device", "device", _cuda_index, device)
    if missing := what_is_missing():
        raise UnsupportedError(f"rank {rank}, use_device: {missing}")
    return torch.cuda.current_device() if index is None else index


def _cuda_index(device: Any) -> int | None:
    """None: torch's current one."""
    expected = ("expected a CUDA device: its number from 0, a name such as 'cuda:1', a "
                "torch.device or None")
    if device is None:
        return None
    if isinstance(device, bool) or not isinstance(device, (int, str, torch.device)):
        raise ArgumentTypeError(f"{expected}, found {shown(device)}")
    try:
        found = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    except (RuntimeError, OverflowError, ValueError):
        found = None
    if found is None or found.type != "cuda" or (found.index or 0) < 0:
        raise InvalidArgument(f"{expected}, found {shown(device)}")
    return found.index


def what_is_missing() -> str:
    """Why torch has no GPU here; empty where it has one."""
    if torch.version.cuda is None:
        return (f"expected a torch that was built with CUDA, found {torch.__version__}, for the "
                "CPU alone")
    if not torch.cuda.is_available():
        return f"expected a GPU, found none that torch {torch.__version__} could use"
    return ""


def take_device_of(context: "core.Context", tensors: Iterable[torch.Tensor]) -> None:
    """Collective where a tensor is on a GPU and the context has no device yet: it then uses that
    one."""
    if context.device is not None:
        return
    for tensor in tensors:
        if tensor.is_cuda:
            context.use_device(tensor.device.index)
            return
