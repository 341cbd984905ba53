"""The ranks that this process joins, and the store in which they meet."""

import builtins
import contextlib
import datetime
import functools
import os
import socket
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch.distributed as dist

from bluefog_cpp import _arguments
from bluefog_cpp._arguments import checked
from bluefog_cpp._extension import core
from bluefog_cpp.errors import (
    InvalidArgument,
    StateError,
    TimeoutError,
    TransportError,
    UnsupportedError,
)
from bluefog_cpp.torch._start.stores import StoreView, checked_store


class Handed(NamedTuple):
    """The store that the caller of `init` hands over, and its place among the ranks."""

    store: Any
    rank: int
    size: int


def handed(store: Any, rank: int | None, size: int | None) -> Handed | None:
    """The arguments of `init`, checked; None where it has none of them."""
    if store is None:
        if rank is not None or size is not None:
            name = "size" if rank is None else "rank"
            raise InvalidArgument(f"init: {name}: expected a store with it, found none")
        return None
    checked("init", "store", checked_store, store)
    if rank is None or size is None:
        raise InvalidArgument(
            f"init: {'rank' if rank is None else 'size'}: expected an integer beside the store, "
            "found None")
    size = checked("init", "size", _arguments.at_least(1), size)
    return Handed(store, checked("init", "rank", _arguments.at_least(0, size - 1), rank), size)


@contextlib.contextmanager
def asking_to_join(wish: bool | None) -> Iterator[None]:
    """Has the start ask ranks that run to take this process in, or not; None: as it is."""
    name, before = "BLUEFOG_JOIN", os.environ.get("BLUEFOG_JOIN")
    if wish is not None:
        os.environ[name] = "1" if wish else "0"
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before


def join(given: Handed | None, is_fork_of: int | None) -> core.Context:
    """The context of the ranks that this process belongs to.

    given: the store that the caller hands over.
    is_fork_of: the rank that this process was forked from.
    """
    if given is not None:
        _refuse_fork(is_fork_of)
        core.Launch.check_handed_place(given.rank, given.size)
        launch = _place(given.rank, given.size, "the program", "a store handed over")
        return _join_in(given.store, "the store that init was given", launch)
    launch = _stated_by_environment()
    if _follows_default_group(launch):
        return _join_default_group(launch, is_fork_of)
    if launch.way == "torchrun" or (launch.way == "environment" and dist.is_available()):
        launch.claim()
        return _join_in(_store_at(launch), _name_of_store(launch), launch)
    return core.Context.create()


def _stated_by_environment() -> core.Launch:
    try:
        return core.Launch.detect()
    except InvalidArgument:
        if dist.is_available() and dist.is_initialized():
            return core.Launch()  # the group names rank and size itself
        raise


def _refuse_fork(is_fork_of: int | None) -> None:
    if is_fork_of is not None:
        raise StateError(
            f"this process was forked from rank {is_fork_of}, and only that one is a rank; "
            "communicate there")


def _place(rank: int, size: int, launcher: str, stated_by: str) -> core.Launch:
    launch = core.Launch()
    launch.rank, launch.size = rank, size
    launch.launcher, launch.stated_by = launcher, stated_by
    launch.prefix = "bluefog_cpp"
    return launch


def _join_in(store: Any, description: str, launch: core.Launch) -> core.Context:
    return core.join_over_store(StoreView(store, description), launch)


def _follows_default_group(launch: core.Launch) -> bool:
    if not (dist.is_available() and dist.is_initialized()):
        return False
    # A user who asks for MPI's messages gets its ranks.
    return not (launch.way == "mpi" and os.environ.get("BLUEFOG_TRANSPORT") == "mpi")


def _join_default_group(launch: core.Launch, is_fork_of: int | None) -> core.Context:
    rank, size = dist.get_rank(), dist.get_world_size()
    is_same = rank == launch.rank and launch.size in (0, size)
    if launch.way != "single" and not is_same:
        raise UnsupportedError(
            f"rank {rank} of {size}, by torch.distributed's default group, and {launch.stated_by}, "
            f"by {launch.launcher}: expected both to name the same rank and number of ranks")
    store = _default_store()
    if store is None:  # of a group over MPI
        return core.Context.create()
    if launch.job:
        launch.claim()
    else:
        _refuse_fork(is_fork_of)
    place = _place(rank, size, "torch.distributed", f"rank {rank} of {size} in its default group")
    return _join_in(store, "the store of torch.distributed's default group", place)


def _default_store() -> Any:
    # torch has no public way to the store of its default group.
    from torch.distributed import distributed_c10d

    find = getattr(distributed_c10d, "_get_default_store", None)
    return find() if find is not None else None


def _name_of_store(launch: core.Launch) -> str:
    whose = "torchrun" if launch.is_store_served else "rank 0"
    return f"the store of {whose} at {launch.store}"


def _store_at(launch: core.Launch) -> Any:
    host, _, port = launch.store.rpartition(":")
    keeps_it = launch.rank == 0 and not launch.is_store_served
    what = (f"rank {launch.rank}, init: cannot keep the store of rank 0 at {launch.store}"
            if keeps_it else f"rank {launch.rank}, init: cannot reach {_name_of_store(launch)}")
    place = host.strip("[]"), int(port)
    try:
        return _tcp_store(*place, keeps_it)
    except builtins.TimeoutError as error:
        raise TimeoutError(f"{what}: {error}{_why_unreachable(*place)}") from None
    except RuntimeError as error:
        raise TransportError(f"{what}: {error}{_why_unreachable(*place)}") from None


def _why_unreachable(host: str, port: int) -> str:
    # torch's words of a timeout leave out what it was that failed all the time.
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError as error:
        return f" ({error.strerror or error})"
    return ""


@functools.cache
def _tcp_store(host: str, port: int, keeps_it: bool) -> Any:
    """torch's store at a place, one for each in this process, as long as that lives: a later
    `init_process_group` of the rank that keeps it takes the same port."""
    from bluefog_cpp import _c10d

    seconds = core.settings_timeout()
    store = _c10d.open_tcp_store(host, port, keeps_it, datetime.timedelta(seconds=seconds))
    if store is None:
        raise builtins.TimeoutError(f"no answer within {seconds:g} s (BLUEFOG_TIMEOUT)")
    return store
