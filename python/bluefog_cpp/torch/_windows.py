"""One-sided averaging: each rank keeps a buffer for each in-neighbour, which that one writes, or
this rank fetches, while the other side computes and calls nothing.

Only `win_create` and `win_free` are collective. Names that start with `win_` and `neighbor_win_`
are the same functions.
"""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from bluefog_cpp import _arguments
from bluefog_cpp._arguments import checked
from bluefog_cpp._extension import core
from bluefog_cpp.errors import InvalidArgument
from bluefog_cpp.torch._devices import take_device_of
from bluefog_cpp.torch._own.compressions import compression_from
from bluefog_cpp.torch._plans import DstWeights
from bluefog_cpp.torch._ranges import ranged
from bluefog_cpp.torch._runtime import Runtime, current
from bluefog_cpp.torch._tensors import (
    check_sendable,
    elements,
    elements_to_write,
    on_cpu,
    range_of,
    written_back,
)
from bluefog_cpp.torch._wrapped import steering
from bluefog_cpp.torch._wrapped.window import Window

# ---- life


@ranged
def win_create(tensor: torch.Tensor, name: str, zero_init: bool = False) -> bool:
    """Collective. A window over `tensor` and the topology: a buffer for each in-neighbour, filled
    with this rank's own value, or with zeros. The tensor is kept; `win_update` writes into it.

    A tensor on a GPU (of `use_device`, which this does where it was not done) has its buffers in
    device memory where all ranks are on one host and reach each other's GPUs; else they are on the
    host, and calls work on copies there. Calls are ordered by torch's current stream; `win_publish`
    says what other ranks get.

    Memory: one copy of the tensor for each in-neighbour, shared between the ranks of a host; for a
    tensor on a GPU one more.

    The window keeps the tensor's memory: after `resize_`, `set_` or `data = …` its calls raise
    StateError here, and other ranks go on reading what was there. False, with a line in the log, if
    a window of that name exists. Raises InvalidArgument for a tensor that is not contiguous or not
    of a floating dtype, UnsupportedError for one that cannot be sent, MismatchError where ranks
    differ.
    """
    runtime = current()
    runtime.argument("win_create", "name", _arguments.text, name)
    zero_init = runtime.argument("win_create", "zero_init", _arguments.switch, zero_init)
    if name in runtime.windows:
        text = f"win_create: a window '{name}' exists already"
        runtime.context.log_error(text)
        runtime.context.refuse(
            f"rank {runtime.rank}, {text}")  # ranks that have none wait for this one
        return False
    runtime.source("win_create", tensor, name, _itself)
    take_device_of(runtime.context, [tensor])
    window = core.Window.create(runtime.context, tensor, runtime.topology.plan, name, zero_init,
                                runtime.has_associated_p)
    runtime.windows[name] = Window(window, tensor, name, next(runtime.window_numbers))
    return True


@ranged
def win_free(name: str | None = None) -> bool:
    """Collective. Gives back the memory of the window, or of all of them, those of optimizers that
    are gone among them. False for an unknown name, with a line in the log; ranks that wait for this
    one in freeing it are told."""
    runtime = current()
    if name is not None:
        runtime.argument("win_free", "name", _arguments.text, name)
    # The collector may have come to an optimizer's windows here, and not yet on other ranks.
    known = [*runtime.windows.values(), *runtime.retired_windows]
    freed = [window for window in known if name in (None, window.name)]
    if name is not None and not freed:
        text = f"win_free: there is no window '{name}'"
        runtime.context.log_error(text)
        runtime.context.refuse(f"rank {runtime.rank}, {text}")
        return False
    free_windows(runtime, freed)
    return True


def free_windows(runtime: Runtime, windows: Iterable[Window]) -> None:
    """Collective: the same windows on all ranks."""
    for window in sorted(windows, key=lambda window: window.number):
        window.core.free()  # all ranks keep it where one cannot
        if runtime.windows.get(window.name) is window:
            del runtime.windows[window.name]
        else:
            runtime.retired_windows.remove(window)


def free_retired_windows(runtime: Runtime, call: str) -> None:
    """Collective. Frees those that no optimizer uses any more, on any rank. call: the user's."""
    own = json.dumps([window.number for window in runtime.retired_windows])
    over = set.intersection(*(set(json.loads(numbers)) for numbers in core.gather_bytes(
        runtime.context, call, own.encode())))
    free_windows(runtime, [window for window in runtime.retired_windows if window.number in over])


def get_current_created_window_names() -> list[str]:
    """The names of the windows that exist, sorted."""
    return sorted(current().windows)


# ---- put, accumulate, get


@ranged
def neighbor_win_put_nonblocking(tensor: torch.Tensor, name: str,
                                 self_weight: float | None = None,
                                 dst_weights: DstWeights | None = None,
                                 require_mutex: bool = False,
                                 compression: str | None = None) -> int:
    """Starts `neighbor_win_put`; the handle is for `win_poll` and `win_wait`."""
    return _start_store("put", tensor, name, self_weight, dst_weights, require_mutex, compression)


@ranged
def neighbor_win_put(tensor: torch.Tensor, name: str, self_weight: float | None = None,
                     dst_weights: DstWeights | None = None, require_mutex: bool = False,
                     compression: str | None = None) -> bool:
    """Writes tensor · dst_weights[r] into the buffer that out-neighbour r keeps for this rank; then
    tensor ← self_weight · tensor.

    dst_weights: some out-neighbours; default all, weight 1. require_mutex: holds their mutexes.
    compression: a code of docs/optimizers.md, "int8" or another one of the library's, whose C(x)
    is written in x's place, and whose bytes travel between hosts; what it leaves out is nowhere.
    Returns when the values are there. Cost: one message of the tensor to each. Raises
    InvalidArgument for ranks that are no out-neighbours, a tensor of another shape, one elsewhere
    than that of a window on a GPU (one on a GPU is copied for a window on the CPU), a code of the
    program's own, or values beyond float32 with a code; UnsupportedError for a code of a window on
    a GPU or of 16 bits.
    """
    return win_wait(neighbor_win_put_nonblocking(tensor, name, self_weight, dst_weights,
                                                 require_mutex, compression))


@ranged
def neighbor_win_accumulate_nonblocking(tensor: torch.Tensor, name: str,
                                        self_weight: float | None = None,
                                        dst_weights: DstWeights | None = None,
                                        require_mutex: bool = False,
                                        compression: str | None = None) -> int:
    """Starts `neighbor_win_accumulate`."""
    return _start_store("accumulate", tensor, name, self_weight, dst_weights, require_mutex,
                        compression)


@ranged
def neighbor_win_accumulate(tensor: torch.Tensor, name: str, self_weight: float | None = None,
                            dst_weights: DstWeights | None = None, require_mutex: bool = False,
                            compression: str | None = None) -> bool:
    """Puts as `neighbor_win_put`, adding to what the buffers hold."""
    return win_wait(neighbor_win_accumulate_nonblocking(tensor, name, self_weight, dst_weights,
                                                        require_mutex, compression))


@ranged
def neighbor_win_get_nonblocking(name: str, src_weights: Mapping[int, float] | None = None,
                                 require_mutex: bool = False) -> int:
    """Starts `neighbor_win_get`."""
    runtime, call = current(), "win_get"
    window = _window(runtime, call, name)
    weights = checked(call, "src_weights", steering.rank_weights, src_weights)
    work = window.core.start_get(weights,
                                 checked(call, "require_mutex", _arguments.switch, require_mutex))
    return runtime.add_without_result(work)


@ranged
def neighbor_win_get(name: str, src_weights: Mapping[int, float] | None = None,
                     require_mutex: bool = False) -> bool:
    """Fetches the in-neighbours' window tensors, times their weight, into this rank's buffers.

    src_weights: some in-neighbours, else InvalidArgument; default all, weight 1. require_mutex:
    holds their mutexes. Cost: one message of the tensor from each.
    """
    return win_wait(neighbor_win_get_nonblocking(name, src_weights, require_mutex))


def win_poll(handle: int) -> bool:
    """Whether the call is complete; never blocks. The handle stays, for `win_wait` to tell what
    went wrong; the tensor of a call that is complete is not kept."""
    return current().is_done(handle, "win_poll")


@ranged
def win_wait(handle: int) -> bool:
    """Blocks until the call is complete; raises its error, else returns True."""
    current().wait(handle, "win_wait")
    return True


@ranged
def win_publish(name: str) -> bool:
    """Other ranks' `win_get` finds the window's tensor as it is now. On the CPU it always does, and
    this does nothing. A tensor on a GPU is found as it was in this rank's last `win_create`,
    `win_put`, `win_accumulate`, `win_get`, `win_update` or `win_publish` with it."""
    _window(current(), "win_publish", name).core.publish()
    return True


win_put = neighbor_win_put
win_put_nonblocking = neighbor_win_put_nonblocking
win_accumulate = neighbor_win_accumulate
win_accumulate_nonblocking = neighbor_win_accumulate_nonblocking
win_get = neighbor_win_get
win_get_nonblocking = neighbor_win_get_nonblocking


# ---- update


@ranged
def win_update(name: str, self_weight: float | None = None,
               neighbor_weights: Mapping[int, float] | None = None, reset: bool = False,
               clone: bool = False, require_mutex: bool = False) -> torch.Tensor:
    """self_weight x + Σ_j neighbor_weights[j] b(j), of the window's tensor x and its buffers b.

    Both weights or neither; then those of the topology the window was created with. The result goes
    into the window's tensor, which is returned; with `clone` into a new one. reset: the buffers
    that were used become zero. require_mutex: holds this rank's mutex meanwhile. Nothing is sent.
    Raises InvalidArgument for one weight without the other, or ranks that are no in-neighbours.
    """
    runtime = current()
    return _update(runtime, "win_update", _window(runtime, "win_update", name), self_weight,
                   neighbor_weights, reset, clone, require_mutex)


def _update(runtime: Runtime, call: str, window: Window, self_weight: Any,
            neighbor_weights: Any, reset: Any, clone: Any, require_mutex: Any) -> torch.Tensor:
    self_weight = checked(call, "self_weight", _arguments.weight, self_weight)
    weights = checked(call, "neighbor_weights", steering.rank_weights, neighbor_weights)
    reset = checked(call, "reset", _arguments.switch, reset)
    clone = checked(call, "clone", _arguments.switch, clone)
    require_mutex = checked(call, "require_mutex", _arguments.switch, require_mutex)
    if (self_weight is None) != (weights is None):
        raise InvalidArgument(
            f"rank {runtime.rank}, {call}: expected self_weight and neighbor_weights together, or "
            f"neither, found no {'self_weight' if self_weight is None else 'neighbor_weights'}")
    output = core.fresh_like(window.tensor) if clone else None
    window.core.update(self_weight, weights, reset, require_mutex, output)
    if output is None:
        core.note_change(window.tensor)
        return window.tensor
    return output


@ranged
def win_update_then_collect(name: str, require_mutex: bool = True) -> torch.Tensor:
    """x ← x + Σ_j b(j), and the buffers become zero: nothing that was accumulated is lost or
    counted twice. Returns x."""
    runtime, call = current(), "win_update_then_collect"
    weights = dict.fromkeys(runtime.topology.plan.src_ranks, 1.0)
    return _update(runtime, call, _window(runtime, call, name), 1.0, weights, True, False,
                   require_mutex)


def get_win_version(name: str) -> dict[int, int]:
    """Counts by in-neighbour: how often its buffer was written since it was last read."""
    return dict(_window(current(), "get_win_version", name).core.versions())


# ---- mutexes


@contextlib.contextmanager
def win_mutex(name: str, for_self: bool = False, ranks: list[int] | None = None) -> Iterator[None]:
    """Holds the mutexes of the out-neighbours, or of `ranks`, or with `for_self` this rank's own
    (and those of `ranks`, if given). Calls of other ranks with `require_mutex` that concern them
    wait; a call of this thread that takes one of them again raises StateError. TimeoutError, where
    they do not become free, names the holder."""
    with _held(current(), "win_mutex", name, for_self, ranks):
        yield


@contextlib.contextmanager
def _held(runtime: Runtime, call: str, name: str, for_self: bool, ranks: Any) -> Iterator[None]:
    window = _window(runtime, call, name)
    own = [runtime.rank] if checked(call, "for_self", _arguments.switch, for_self) else []
    if ranks is not None:
        taken = [*own, *checked(call, "ranks", _arguments.ranks(-1, runtime.size), ranks)]
    else:
        taken = own or runtime.topology.plan.dst_ranks
    lock = window.core.lock(taken)
    try:
        yield
    finally:
        lock.release()


@contextlib.contextmanager
def win_lock(name: str) -> Iterator[None]:
    """Holds this rank's own mutex."""
    with _held(current(), "win_lock", name, True, None):
        yield


# ---- the scalar of push-sum


def win_associated_p(name: str) -> float:
    """The scalar that goes through the same puts, accumulates and updates as the tensor, where that
    is turned on; 1 at first."""
    return float(_window(current(), "win_associated_p", name).core.associated_p)


def turn_on_win_ops_with_associated_p() -> None:
    """From now on the scalars of all windows go along."""
    _set_associated_p(True)


def turn_off_win_ops_with_associated_p() -> None:
    """From now on they stay as they are."""
    _set_associated_p(False)


def _set_associated_p(on: bool) -> None:
    runtime = current()
    runtime.has_associated_p = on
    for window in list(runtime.windows.values()):
        window.core.set_has_associated_p(on)


# ---- inside


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    check_sendable(tensor)
    if not tensor.is_contiguous():
        raise InvalidArgument("expected a contiguous tensor, found one of shape "
                              f"{list(tensor.shape)} with strides {list(tensor.stride())}")
    return tensor


def _window(runtime: Runtime, call: str, name: str) -> Window:
    checked(call, "name", _arguments.text, name)
    try:
        window: Window = runtime.windows[name]
    except KeyError:
        raise InvalidArgument(f"rank {runtime.rank}, {call}: name: expected that of a window "
                              f"({', '.join(sorted(runtime.windows)) or 'there is none'}), found "
                              f"{name!r}") from None
    window.check_in_place(runtime.rank, name)
    return window


def _code(value: Any) -> Any:
    return None if value is None or (isinstance(value, str) and value == "none") else \
        compression_from(value)


def _start_store(kind: str, tensor: torch.Tensor, name: str, self_weight: Any, dst_weights: Any,
                 require_mutex: Any, compression: Any) -> int:
    runtime, call = current(), f"win_{kind}"
    window = _window(runtime, call, name)
    self_weight = checked(call, "self_weight", _arguments.weight, self_weight)
    weights = checked(call, "dst_weights", steering.receivers, dst_weights)
    require_mutex = checked(call, "require_mutex", _arguments.switch, require_mutex)
    code = checked(call, "compression", _code, compression)
    start: Callable[..., core.Work] = (
        window.core.start_put if kind == "put" else window.core.start_accumulate)
    try:
        source = (elements if self_weight is None else elements_to_write)(tensor)
        source = on_cpu(source) if window.tensor.is_cpu else source
    except Exception as error:
        raise runtime.placed(f"{call} '{name}'", error) from None
    if tensor.shape != window.tensor.shape:
        raise InvalidArgument(
            f"rank {runtime.rank}, window '{name}', {call}: expected a tensor of the window's "
            f"shape, {list(window.tensor.shape)}, found {list(tensor.shape)}")
    work = start(source, 1.0 if self_weight is None else self_weight, weights, require_mutex, code)
    if self_weight is None:
        return runtime.add_without_result(work)
    return runtime.add_without_result(work, written_back(source, tensor), range_of(source))
