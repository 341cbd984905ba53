"""Who this process is, and the graphs that it averages over.

All but `init`, `shutdown`, `is_initialized` and `check_build` raise NotInitialized before `init`.
All but `init`, `resync` and `shutdown` are local.
"""

from collections.abc import Callable
from typing import Any

import networkx as nx

from bluefog_cpp import _arguments
from bluefog_cpp._arguments import checked
from bluefog_cpp._extension import core
from bluefog_cpp._matrices import default_graph
from bluefog_cpp.errors import InvalidArgument, StateError
from bluefog_cpp.torch import _runtime
from bluefog_cpp.torch._runtime import Runtime, current
from bluefog_cpp.torch._start import launch
from bluefog_cpp.torch._wrapped import giving_up


def init(topology_fn: Callable[[int], nx.DiGraph] | None = None,
         is_weighted: bool = False, *, store: Any = None, rank: int | None = None,
         size: int | None = None, join: bool | None = None) -> None:
    """Collective. Joins the ranks of this launch, or makes this process a single rank where no
    launcher started it.

    topology_fn: makes the graph from the number of ranks; default: the exponential graph, base 2.
    is_weighted: whether the graph's weights count, or every value 1 / (in-degree + 1).
    store: a `torch.distributed.Store` in which the ranks meet, with this process's `rank` and the
        number of ranks, `size`.
    join: asks ranks that are running to take this process in, which is rank 0 of 1 until `enter`;
        default: what BLUEFOG_JOIN says.

    Without a store the ranks are, in this order, those of `torch.distributed`'s default group where
    there is one; of `bfrun`; of `torchrun`; of `mpirun` or `srun --mpi=pmix`; of RANK, WORLD_SIZE,
    MASTER_ADDR and MASTER_PORT; of Slurm's tasks. Two that name different ranks are an
    UnsupportedError. `BLUEFOG_LOG_LEVEL=info` shows which way was taken.

    Called again, it sets the topology anew, to that of `topology_fn` or the default, and forgets
    that of the machines: what it does the first time. It raises StateError while windows stand on
    another topology, and where it fails all stays as it was. After `shutdown` it may be called
    again. Reads the `BLUEFOG_*` variables.
    """
    is_new = not _runtime.is_initialized()
    if not is_new and (store, rank, size) != (None, None, None):
        raise StateError(
            f"rank {_runtime.current().rank}, init: expected no store, rank or size after the "
            "first call, found one; call shutdown() first")
    if join is not None:
        checked("init", "join", _arguments.switch, join)
    with launch.asking_to_join(join):
        runtime = _runtime.start(launch.handed(store, rank, size))
    try:
        checked("init", "topology_fn", _arguments.function_or_none, topology_fn)
        is_weighted = checked("init", "is_weighted", _arguments.switch, is_weighted)
        graph = (default_graph if topology_fn is None else topology_fn)(runtime.size)
        if not _set_topology(runtime, "init", graph, is_weighted, topology_fn is None):
            raise StateError(
                f"rank {runtime.rank}, init: expected no window while the topology changes, "
                f"found {', '.join(sorted(runtime.windows))}; free them first")
        runtime.topology.maker = None if topology_fn is None else (topology_fn, is_weighted)
        runtime.machine_topology = None
        giving_up.watch()
    except BaseException:
        if is_new:
            shutdown()
        raise


def shutdown() -> None:
    """Leaves the group. Calls in flight fail here; ranks that wait for this one are told. Also runs
    when the process exits. Idempotent."""
    _runtime.stop()


def resync() -> None:
    """Collective, in no order with other calls: brings ranks that are calls apart back together.

    All ranks call it after one of them has left a call out (its cell of a notebook failed, say),
    and others have timed out in it. Calls in flight end with StateError, and all ranks go on with
    the same call. Windows and wrapped optimizers, which have contexts of their own, are not
    touched.

    Raises StateError on all ranks where a call that only some of them have made has changed a
    tensor in place, which it names: `shutdown` and `init` on all ranks, and the same values
    everywhere, are the way out then. Raises PeerFailure where a rank has left or died, and
    TimeoutError where not all ranks come within BLUEFOG_TIMEOUT and a minute at least.
    """
    current().context.resync()


def is_initialized() -> bool:
    """Whether `init` was called, and not `shutdown` since."""
    return _runtime.is_initialized()


def size() -> int:
    """Number of ranks."""
    return current().size


def rank() -> int:
    """This process's number, 0 … size() - 1."""
    return current().rank


def local_size() -> int:
    """Number of ranks on this rank's machine."""
    return current().context.local_size


def local_rank() -> int:
    """This rank's place among the ranks of its machine, 0 … local_size() - 1."""
    return current().context.local_rank


def machine_size() -> int:
    """Number of machines: hosts, or parts of them under `BLUEFOG_NODES_PER_MACHINE`."""
    return current().context.machine_count


def machine_rank() -> int:
    """This rank's machine, 0 … machine_size() - 1."""
    return current().context.machine_rank


def is_homogeneous() -> bool:
    """Whether every machine has the same number of ranks."""
    return current().context.is_homogeneous


def nccl_built() -> bool:
    """Whether averages of tensors on the device of `use_device` go by NCCL; False before that."""
    return current().context.uses_nccl()


def mpi_threads_supported() -> bool:
    """True: any thread may call, each in an order that is the same on all ranks."""
    current()
    return True


def unified_mpi_window_model_supported() -> bool:
    """True: windows do not stand on MPI's."""
    current()
    return True


def set_topology(topology: nx.DiGraph | None = None, is_weighted: bool = False) -> bool:
    """Sets the graph that static averages go over, the same on all ranks; default: the exponential
    graph, base 2. Its first use compares what the ranks set, which costs one all-gather.

    is_weighted: whether the edges' `weight` counts (see `topology_util`), or every value
    1 / (in-degree + 1).
    False, with a line in the log, while windows exist; else True.
    Raises ArgumentTypeError for anything but a DiGraph with one node for each rank, InvalidArgument
    for weights that are no finite numbers.
    """
    runtime = current()
    is_weighted = checked("set_topology", "is_weighted", _arguments.switch, is_weighted)
    is_default = topology is None
    if is_default:
        topology = default_graph(runtime.size)
    if _set_topology(runtime, "set_topology", topology, is_weighted, is_default):
        return True
    runtime.context.log_error("set_topology: the topology cannot change while windows exist: "
                              f"{', '.join(sorted(runtime.windows))}; free them first")
    return False


def _set_topology(runtime: Runtime, call: str, topology: nx.DiGraph, is_weighted: bool,
                  is_default: bool) -> bool:
    """False where windows stand on another one."""
    if runtime.topology is not None and isinstance(topology,
                                                   nx.DiGraph) and runtime.topology.equals(
                                                           topology, is_weighted):
        runtime.topology.is_default, runtime.topology.maker = is_default, None
        return True
    made = runtime.make_topology(call, topology, is_weighted)
    made.is_default = is_default
    if runtime.windows:
        return False
    runtime.topology = made
    return True


def load_topology() -> nx.DiGraph:
    """The graph that is set. A copy: changing it changes nothing here."""
    return current().topology.graph.copy()


def is_topo_weighted() -> bool:
    """Whether the weights of the graph count."""
    return current().topology.is_weighted


def in_neighbor_ranks() -> list[int]:
    """The ranks that this one hears, rising, without itself."""
    return current().topology.plan.src_ranks


def out_neighbor_ranks() -> list[int]:
    """The ranks that this one sends to, rising, without itself."""
    return current().topology.plan.dst_ranks


def set_machine_topology(topology: nx.DiGraph | None, is_weighted: bool = False) -> bool:
    """Sets the graph between machines for `hierarchical_neighbor_allreduce`, the same on all ranks.

    is_weighted: as for `set_topology`. Returns True.
    Raises InvalidArgument for None and for weights that are no finite numbers, ArgumentTypeError
    for anything else but a DiGraph with one node for each machine.
    """
    runtime, call = current(), "set_machine_topology"
    is_weighted = checked(call, "is_weighted", _arguments.switch, is_weighted)
    if topology is None:
        raise InvalidArgument(
            f"rank {runtime.rank}, {call}: topology: expected a networkx.DiGraph, found "
            "None")
    if (runtime.machine_topology is None or not isinstance(topology, nx.DiGraph)
            or not runtime.machine_topology.equals(topology, is_weighted)):
        runtime.machine_topology = runtime.make_machine_topology(call, topology, is_weighted)
    return True


def load_machine_topology() -> nx.DiGraph | None:
    """The graph between machines, or None. A copy."""
    topology = current().machine_topology
    return None if topology is None else topology.graph.copy()


def is_machine_topo_weighted() -> bool:
    """Whether the weights of the machines' graph count; False where none is set."""
    topology = current().machine_topology
    return topology is not None and topology.is_weighted


def in_neighbor_machine_ranks() -> list[int] | None:
    """The machines that this one hears, rising; None where no machine topology is set."""
    topology = current().machine_topology
    return None if topology is None else topology.plan.src_ranks


def out_neighbor_machine_ranks() -> list[int] | None:
    """The machines that this one sends to, rising; None where no machine topology is set."""
    topology = current().machine_topology
    return None if topology is None else topology.plan.dst_ranks


def set_skip_negotiate_stage(value: bool) -> None:
    """Accepted for BlueFog's scripts: nothing is ever negotiated here."""
    current().skips_negotiation = checked("set_skip_negotiate_stage", "value",
                                          _arguments.switch, value)


def get_skip_negotiate_stage() -> bool:
    """The value that `set_skip_negotiate_stage` was told."""
    return current().skips_negotiation


def suspend() -> None:
    """Accepted for BlueFog's scripts: an idle rank takes no core here."""
    current()


def resume() -> None:
    """Accepted for BlueFog's scripts, as `suspend`."""
    current()


def check_build() -> str:
    """The parts that were built in, in a few words."""
    mpi = "yes" if core.has_mpi() else "no"
    return f"bluefog_cpp {core.version}, torch {core.torch_version}, MPI {mpi}"
