"""Between the user's tensors and what the core takes: contiguous ones on the CPU, or on the device
that is used."""

import weakref
from collections.abc import Callable, Iterable, Iterator

import torch

from bluefog_cpp._extension import core
from bluefog_cpp.errors import ArgumentTypeError, InvalidArgument, UnsupportedError
from bluefog_cpp.torch._runtime import current

_DTYPES = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8,
                     torch.int8, torch.int16, torch.int32, torch.int64, torch.bool))
_OWN_TYPES = frozenset((torch.Tensor, torch.nn.Parameter))
_PLAIN_DISPATCH = torch.Tensor.__torch_dispatch__


def check_sendable(tensor: torch.Tensor) -> None:
    """Raises ArgumentTypeError for what is no tensor, UnsupportedError for one whose elements do
    not lie in memory, one after the other, as numbers that ranks exchange."""
    if not isinstance(tensor, torch.Tensor):
        raise ArgumentTypeError(f"expected a torch.Tensor, found {type(tensor).__name__}")
    if (tensor.layout is not torch.strided or tensor.dtype not in _DTYPES or tensor.is_nested
            or tensor.is_meta or type(tensor).__torch_dispatch__ is not _PLAIN_DISPATCH):
        raise UnsupportedError(
            f"expected a dense torch.Tensor of real numbers, found {_kind(tensor)}")


def _kind(tensor: torch.Tensor) -> str:
    dtype = str(tensor.dtype).replace("torch.", "")
    if tensor.is_nested:
        return f"a nested tensor of dtype {dtype}"
    if tensor.layout is not torch.strided:
        return f"a tensor of layout {tensor.layout}"
    if tensor.is_quantized:
        return f"a quantized tensor ({dtype})"
    if tensor.is_meta:
        return "a meta tensor, which has no elements"
    if tensor.dtype not in _DTYPES:
        return f"one of dtype {dtype}"
    return f"a {type(tensor).__name__}, which stands for elements that lie elsewhere"


def elements(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself where the core can take it, else a copy that it can take. Raises as
    `check_sendable`, and UnsupportedError where torch captures a CUDA graph of which a call with it
    cannot be part."""
    if is_plain(tensor):  # what is checked below, at once
        _check_no_capture(tensor)
        return tensor
    check_sendable(tensor)
    if tensor.is_neg():
        tensor = tensor.detach().resolve_neg()
    if tensor.is_cuda and current().context.device is not None:
        return tensor if tensor.is_contiguous() else tensor.detach().contiguous()
    _check_no_capture(tensor)
    if tensor.is_cpu:
        return tensor if tensor.is_contiguous() else tensor.detach().contiguous()
    return tensor.detach().cpu().contiguous()


def on_cpu(source: torch.Tensor) -> torch.Tensor:
    """The result of `elements`, for calls that take it on the CPU alone."""
    if source.is_cpu:
        return source
    _check_no_capture(source)
    return source.detach().cpu()


def _check_no_capture(tensor: torch.Tensor) -> None:
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        where = "on the CPU" if tensor.is_cpu else f"on {tensor.device} that goes through the CPU"
        raise UnsupportedError(
            "torch captures a CUDA graph, whose launches cannot repeat this call: expected a "
            f"tensor on the device of use_device, found one {where}")


def check_writable(tensor: torch.Tensor) -> None:
    """Raises InvalidArgument for a tensor with elements that share memory (of `expand`, or with
    strides that overlap): they cannot have values of their own."""
    check_sendable(tensor)
    if _has_shared_elements(tensor):
        raise InvalidArgument(
            "expected a tensor whose elements have memory of their own, to write into, found one "
            f"of shape {list(tensor.shape)} with strides {list(tensor.stride())}; pass its clone()")


def _has_shared_elements(tensor: torch.Tensor) -> bool:
    steps = sorted((stride, size) for stride,
                   size in zip(tensor.stride(), tensor.shape) if size > 1)
    reach = 1
    for stride, size in steps:
        if stride < reach:
            break
        reach += (size - 1) * stride
    else:
        return False
    if tensor.numel() == 0 or stride == 0:
        return stride == 0 and tensor.numel() > 0
    places = _places(steps)
    return bool(places.unique().numel() < places.numel())


def _places(steps: Iterable[tuple[int, int]]) -> torch.Tensor:
    """Of all elements, counted from the first one. steps: (stride, size) of each dimension."""
    places = torch.zeros(1, dtype=torch.int64)
    for stride, size in steps:
        places = (places[:, None] + stride * torch.arange(size)).reshape(-1)
    return places


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether calls take the tensor as it is, a quick look: one of torch's own types, dense,
    contiguous, on the CPU."""
    return type(tensor) in _OWN_TYPES and core.is_plain(tensor)


def all_to_write(tensors: list[torch.Tensor]) -> list[torch.Tensor] | None:
    """`elements_to_write` of each, where they are all what it would return."""
    if not all(type(tensor) in _OWN_TYPES for tensor in tensors) or not core.are_plain(tensors):
        return None
    if tensors:
        _check_no_capture(tensors[0])
    return tensors


def elements_to_write(tensor: torch.Tensor) -> torch.Tensor:
    """Elements of a tensor that the result is stored into. Raises as `check_writable`."""
    source = elements(tensor)
    if source is not tensor:
        check_writable(tensor)
    return source


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """A fresh tensor of the same elements, for a call that works in place."""
    source = elements(tensor)
    return core.fresh_like(source).copy_(source.detach()) if source is tensor else source


def to_device_of(tensor: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Takes a result to the device of `tensor`, which it does not keep."""
    device = tensor.device
    return lambda result: result if result.device == device else result.to(device)


def into(tensor: torch.Tensor) -> Callable[[torch.Tensor], torch.Tensor]:
    """Puts a result into `tensor`, as `store`."""
    return lambda result: store(result, tensor)


def store(result: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Puts the result of a call into `tensor`, of which `elements` may have been a copy."""
    if result is tensor:
        core.note_change(tensor)
    else:
        tensor.detach().copy_(result)
    return tensor


def written_back(source: torch.Tensor, tensor: torch.Tensor) -> Callable[[], None]:
    """The work that is due when a call has changed `source`: `tensor` takes its values, or, where
    both are one, counts as changed. The tensor is kept in the first case alone."""
    if source is not tensor:
        def take() -> None:
            store(source, tensor)

        return take
    changed = weakref.ref(tensor)

    def note() -> None:
        found = changed()
        if found is not None:
            core.note_change(found)

    return note


def check_apart(tensors: list[torch.Tensor]) -> None:
    """Raises InvalidArgument for two that have an element in common: each would get a result."""
    ranges = sorted((*place, number) for number, tensor in enumerate(tensors)
                    for place in range_of(tensor))
    reach: list[tuple[int, int]] = []  # the ends of those that may go on
    for begin, end, number in ranges:
        reach = [(last, other) for last, other in reach if last > begin]
        for _, other in reach:
            if torch.isin(_addresses(tensors[number]), _addresses(tensors[other])).any():
                first, second = sorted((other, number))
                raise InvalidArgument(
                    f"expected tensors that are apart, found that tensors {first} and {second} of "
                    f"{len(tensors)} have elements in common")
        reach.append((end, number))


def _addresses(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.data_ptr() + tensor.element_size() * _places(zip(tensor.stride(), tensor.shape))


def range_of(tensor: torch.Tensor) -> Iterator[tuple[int, int]]:
    """First and last address but one of its elements; nothing for what has none in memory."""
    if (torch.nn.parameter.is_lazy(tensor) or tensor.layout is not torch.strided or tensor.is_nested
            or type(tensor).__torch_dispatch__ is not _PLAIN_DISPATCH
            or tensor.is_meta or tensor.numel() == 0):
        return
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    begin = tensor.data_ptr()
    yield begin, begin + reach * tensor.element_size()
