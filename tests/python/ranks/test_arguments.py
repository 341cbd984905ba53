"""Every argument of every public function is checked before the core sees it: the error names rank,
call, argument, what was expected and what was found; peers hear of it, and the ranks stay in
step."""

import inspect
import re

import networkx as nx
import numpy
import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from bluefog_cpp.torch import model_averaging
from conftest import needs

pytestmark = pytest.mark.up_to_ranks(2)  # who checks arguments does not look at the number of ranks

NAN, HUGE = float("nan"), 2**70
SWITCH = ("x", 2, -1, None, 0.0, torch.ones(2))
NAME = (3, b"x", ["x"], 1.5, "a\udc80")
TEXT = (*NAME, None, "")
NUMBER = ("0.5", True, NAN, float("inf"), [0.5], torch.ones(2), 1j)
COUNT = (0, -1, 1.5, "1", True, None, HUGE)
RANK = (-1, 64, HUGE, 0.5, "0", True, None, [0], torch.tensor(0.5))
RANKS = ("01", 3, [0.5], ["1"], [64], [-1], [True], [HUGE], torch.tensor(1))
WEIGHTS = ("1", 3, [1], {"1": 1.0}, {1.5: 1.0}, {64: 0.5}, {-1: 0.5}, {True: 0.5})
RECEIVERS = (*(wrong for wrong in WEIGHTS if wrong != [1]), *RANKS)
GRAPH = (3, "ring", nx.Graph([(0, 1)]), nx.DiGraph([(70, 71)]),
         nx.MultiDiGraph([(0, 0)]), object())
OPTIMIZER = (None, 3, "sgd", torch.nn.Linear(1, 1))
MODEL = (None, 3, "model", [], [3], torch.ones(1))
ONE = torch.ones(2)


def plain():
    model = torch.nn.Linear(2, 1)
    return {"optimizer": torch.optim.SGD(model.parameters(), lr=0.1), "model": model}


def names(**checks):
    return checks


REDUCE = names(name=NAME, average=SWITCH, is_hierarchical_local=SWITCH)
AVERAGE = names(name=NAME, self_weight=NUMBER, src_weights=WEIGHTS, dst_weights=RECEIVERS,
                enable_topo_check=SWITCH)
IN_PLACE = names(**AVERAGE, synchronisation=(None, 3, "neighbors", "Auto", True, ["auto"]))
BETWEEN_MACHINES = names(name=NAME, self_weight=NUMBER, src_machine_weights=WEIGHTS,
                         dst_machine_weights=RECEIVERS, enable_topo_check=SWITCH)
GATHER = names(name=NAME, src_ranks=RANKS, dst_ranks=RANKS, enable_topo_check=SWITCH)
GOSSIP = names(target_rank=RANK, self_weight=NUMBER, pair_weight=NUMBER, name=NAME)
STORE = names(name=TEXT, self_weight=NUMBER, dst_weights=RECEIVERS, require_mutex=SWITCH,
              compression=(3, "int3", "topk:0", object()))
FETCH = names(name=TEXT, src_weights=WEIGHTS, require_mutex=SWITCH)
ACTIVITY = names(tensor_name=TEXT, activity_name=TEXT)
WRAP = names(optimizer=OPTIMIZER, model=MODEL, num_steps_per_communication=COUNT)
AVERAGING = names(**WRAP, row_sums=("two", "", None, 1, True))
CHOOSE = names(**AVERAGING, communication_type=(None, "allreduce", 3, True))
OVER_WINDOWS = names(**AVERAGING, window_prefix=NAME)
INFER = names(construct_adjacency_matrix=SWITCH)
TENSORS = (None, 3, "weights", torch.ones(2), torch.nn.Linear(1, 1), [3], [("w", 3)])

TABLE = {
    "allreduce": REDUCE, "allreduce_": REDUCE, "allreduce_nonblocking": REDUCE,
    "allreduce_nonblocking_": REDUCE,
    **dict.fromkeys(("broadcast", "broadcast_", "broadcast_nonblocking", "broadcast_nonblocking_"),
                    names(root_rank=RANK, name=NAME)),
    **dict.fromkeys(("allgather", "allgather_nonblocking"), names(name=NAME)),
    **dict.fromkeys(("neighbor_allreduce", "neighbor_allreduce_nonblocking"), AVERAGE),
    **dict.fromkeys(("neighbor_allreduce_", "neighbor_allreduce_nonblocking_"), IN_PLACE),
    "neighbor_allreduce_multi_": names(
        tensors=(None, 3, "x", ONE, [3], [ONE, 1.0], {"w": ONE}), **IN_PLACE),
    **dict.fromkeys(("hierarchical_neighbor_allreduce",
                     "hierarchical_neighbor_allreduce_nonblocking"),
                    BETWEEN_MACHINES),
    **dict.fromkeys(("neighbor_allgather", "neighbor_allgather_nonblocking"), GATHER),
    **dict.fromkeys(("pair_gossip", "pair_gossip_nonblocking"), GOSSIP),
    "win_create": names(name=TEXT, zero_init=SWITCH), "win_free": names(name=(*NAME, "")),
    **dict.fromkeys(("win_put", "win_put_nonblocking", "win_accumulate",
                     "win_accumulate_nonblocking",
                     "neighbor_win_put", "neighbor_win_put_nonblocking", "neighbor_win_accumulate",
                     "neighbor_win_accumulate_nonblocking"), STORE),
    **dict.fromkeys(("win_get", "win_get_nonblocking", "neighbor_win_get",
                     "neighbor_win_get_nonblocking"), FETCH),
    "win_update": names(name=TEXT, self_weight=NUMBER, neighbor_weights=WEIGHTS, reset=SWITCH,
                        clone=SWITCH, require_mutex=SWITCH),
    "win_update_then_collect": names(name=TEXT, require_mutex=SWITCH),
    "get_win_version": names(name=TEXT), "win_associated_p": names(name=TEXT),
    "win_publish": names(name=TEXT),
    "win_mutex": names(name=TEXT, for_self=SWITCH, ranks=RANKS), "win_lock": names(name=TEXT),
    "init": names(topology_fn=(3, "ring"), is_weighted=SWITCH, join=(3, "yes")),
    "set_topology": names(topology=GRAPH, is_weighted=SWITCH),
    "set_machine_topology": names(topology=(None, *GRAPH), is_weighted=SWITCH),
    "set_skip_negotiate_stage": names(value=SWITCH),
    "survive": names(function=(None, 3, "mean")),
    "on_shrink": names(callback=(None, 3, "mean")),
    "give_up": names(reason=TEXT),
    "hand_to_newcomers": names(stateful=(None, 3, {}, torch.optim.SGD)),
    "ElasticSampler": names(dataset=(None, 3, []), shuffle=SWITCH,
                            seed=(-1, 1.5, "1", True, None, HUGE)),
    "shared_zeros": names(size=(-1, HUGE, 1.5, "3", True, None, [2, -1], [2.0], [True],
                                [2**40, 2**40], ONE)),
    "use_device": names(device=(-1, HUGE, 1.5, True, "cpu", "gpu", [0], torch.device("cpu"), ONE)),
    "timeline_start_activity": ACTIVITY, "timeline_context": ACTIVITY,
    "timeline_end_activity": names(tensor_name=TEXT),
    **dict.fromkeys(("DistributedGradientAllreduceOptimizer", "DistributedPushSumOptimizer",
                     "DistributedAllreduceOptimizer"), WRAP),
    **dict.fromkeys(("DistributedNeighborAllreduceOptimizer",
                     "DistributedHierarchicalNeighborAllreduceOptimizer"), AVERAGING),
    **dict.fromkeys(("DistributedAdaptThenCombineOptimizer",
                     "DistributedAdaptWithCombineOptimizer"),
                    CHOOSE),
    **dict.fromkeys(("DistributedWinPutOptimizer", "DistributedPullGetOptimizer"), OVER_WINDOWS),
    "DecentralizedOptimizer": names(
        **AVERAGING, algorithm=("exat", "", None, 3, True),
        graphs=(3, [], [3], (n for n in ()), nx.Graph()),
        schedule=(3, [], [3], (n for n in ()), nx.Graph()),
        numbers=(3, "rho", {1: 2.0}, {"rho": 0.5}),
        global_period_rounds=COUNT, momentum=NUMBER,
        bucket_bytes=tuple(wrong for wrong in COUNT if not (wrong == 0 and wrong is not False)),
        step_in_backward=SWITCH, compression=(3, True, "", "int3", "topk:0", ["int4"])),
    "Mixing": names(stochastic=("diagonals", 3, None), is_symmetric=SWITCH, is_fixed=SWITCH,
                    eigenvalues_above=NUMBER),
    "Schedule": names(size=COUNT),
    "register_algorithm": names(algorithm=(None, 3, "mine", object, torch.optim.SGD)),
    "register_schedule": names(schedule=(None, 3, "mine", object, nx.DiGraph)),
    "register_compression": names(compression=(None, 3, "mine", object, torch.optim.SGD)),
    "SyncBatchNorm": names(num_features=COUNT, eps=NUMBER, momentum=NUMBER, affine=SWITCH,
                           track_running_stats=SWITCH, process_group=(1, "group")),
    "broadcast_parameters": names(params=TENSORS, root_rank=RANK),
    "allreduce_parameters": names(params=TENSORS),
    "broadcast_optimizer_state": names(optimizer=OPTIMIZER, root_rank=RANK),
    "InferSourceFromDestinationRanks": names(dst_ranks=(None, *RANKS), **INFER),
    "InferDestinationFromSourceRanks": names(src_ranks=(None, *RANKS), **INFER),
}
# Every argument that stands for a tensor is refused in test_refusals.py, too.
for _function, _row in TABLE.items():
    if "tensor" in inspect.signature(getattr(bf, _function)).parameters:
        TABLE[_function] = {"tensor": (None, [1.0], 3, numpy.ones(2)), **_row}

VALID = {
    "root_rank": lambda: 0, "target_rank": lambda: (bf.rank() + 1) % max(bf.size(), 2),
    "name": lambda: "w",
    "tensor": lambda: ONE.clone(), "tensors": lambda: [ONE.clone()], "tensor_name": lambda: "row",
    "activity_name": lambda: "activity",
    "topology": lambda: topology_util.RingGraph(bf.size()), "value": lambda: True,
    "num_features": lambda: 2, "params": lambda: {"w": ONE.clone()}, "dst_ranks": list,
    "src_ranks": list, "size": lambda: 3, "dataset": lambda: [1, 2]}
# A weight without the others that it needs is refused, before a closer look at it or after.
ALSO = {"src_weights": {"self_weight": 0.5}, "dst_weights": {"self_weight": 0.5, "src_weights": {}},
        "neighbor_weights": {"self_weight": 0.5}, "src_ranks": {"dst_ranks": []},
        "dst_ranks": {"src_ranks": []}, "pair_weight": {"self_weight": 0.5},
        "src_machine_weights": {"self_weight": 0.5, "dst_machine_weights": {}},
        "dst_machine_weights": {"self_weight": 0.5, "src_machine_weights": {}}}


def arguments_for(function, argument):
    """Valid ones for all that are needed beside `argument`."""
    parameters = inspect.signature(function).parameters
    given = {name: VALID[name]() for name, parameter in parameters.items()
             if parameter.default is parameter.empty and name in VALID}
    if "optimizer" in parameters:
        given.update({name: value for name, value in plain().items() if name in parameters})
    given.update({name: value for name,
                  value in ALSO.get(argument, {}).items() if name in parameters})
    return given


def check_refusal(where, call, argument, wrong):
    with pytest.raises((bluefog_cpp.InvalidArgument, bluefog_cpp.UnsupportedError)) as raised:
        call()
    said = str(raised.value)
    assert re.search(rf"rank {bf.rank()}, \w+.*\b{argument}\b.*expected .*found", said) or (
        argument == "tensor"
        and re.search(rf"rank {bf.rank()}, \w+.*expected a torch.Tensor, found", said)), (
        where, wrong, said)
    assert "incompatible" not in said and "__index__" not in said


@pytest.mark.parametrize("name,argument",
                         [(name, argument) for name, row in TABLE.items() for argument in row])
def test_wrong_arguments(name, argument):
    function = getattr(bf, name)
    if name.startswith("pair_gossip"):
        needs(2)
    if name.startswith(("win_", "neighbor_win_", "get_win")) and name not in ("win_create",
                                                                              "win_free"):
        bf.win_create(ONE.clone(), "w")
    for wrong in TABLE[name][argument]:
        given = {**arguments_for(function, argument), argument: wrong}

        def call(given=given):
            result = function(**given)
            if name in ("win_mutex", "win_lock", "timeline_context"):
                with result:
                    pass

        check_refusal(name, call, argument, wrong)
    assert bf.allreduce(torch.ones(1)).item() == 1
    bf.barrier()


GRAPH_ROWS = {
    "ExponentialTwoGraph": names(size=COUNT),
    "ExponentialGraph": names(size=COUNT, base=(1, *COUNT)),
    "SymmetricExponentialGraph": names(size=COUNT, base=(1, *COUNT)),
    "FullyConnectedGraph": names(size=COUNT),
    "MeshGrid2DGraph": names(size=COUNT,
                             shape=(3, "23", (2,), (2, 3), (0, 4), (2.0, 2), [True, 4])),
    "StarGraph": names(size=COUNT, center_rank=RANK),
    "RingGraph": names(size=COUNT, connect_style=(-1, 3, 0.0, "0", True, None)),
    "EdgeListGraph": names(path=(3, None, b"x", "", "a\0b"),
                           size=[wrong for wrong in COUNT if wrong is not None]),
    "LazyGraph": names(topo=(None, *GRAPH), self_share=(-0.1, 1.0, *NUMBER)),
    "WithoutRanksGraph": names(topo=(None, *GRAPH), ranks=(None, [0, 1, 2, 3], [1, 1], *RANKS),
                               renumber=SWITCH),
    "IsTopologyEquivalent": names(topo1=(3, nx.Graph()), topo2=("ring", nx.Graph())),
    "IsRegularGraph": names(topo=(None, 3, nx.Graph())),
    "GetRecvWeights": names(topo=(None, *GRAPH), rank=RANK),
    "GetSendWeights": names(topo=(None, *GRAPH), rank=RANK),
    "draw": names(topo=(None, *GRAPH), axes=(3, "axes"), weights=SWITCH),
    "to_mixing_matrix": names(graph=(None, *GRAPH), is_weighted=SWITCH),
    "from_mixing_matrix": names(matrix=(None, 3, nx.DiGraph())),
    "GetDynamicOnePeerSendRecvRanks": names(topo=(None, *GRAPH), self_rank=RANK),
    **dict.fromkeys(("GetInnerOuterRingDynamicSendRecvRanks",
                     "GetInnerOuterExpo2DynamicSendRecvRanks"),
                    names(world_size=COUNT, local_size=(3, *COUNT), self_rank=RANK)),
    "GetExp2DynamicSendRecvMachineRanks": names(world_size=COUNT, local_size=(3, *COUNT),
                                                self_rank=RANK,
                                                local_rank=(1, *RANK)),
}
GRAPH_VALID = {"size": 4, "topo": topology_util.RingGraph(4), "topo1": topology_util.RingGraph(4),
               "topo2": topology_util.RingGraph(4), "graph": topology_util.RingGraph(4),
               "path": "graph.txt",
               "matrix": None, "ranks": [1],
               "rank": 0, "world_size": 4, "local_size": 2, "self_rank": 0, "local_rank": 0}


@pytest.mark.parametrize("name,argument",
                         [(name, argument) for name, row in GRAPH_ROWS.items() for argument in row])
def test_wrong_arguments_of_graphs(name, argument):
    function = getattr(topology_util, name)
    needed = [each for each, parameter in inspect.signature(function).parameters.items()
              if parameter.default is parameter.empty]
    for wrong in GRAPH_ROWS[name][argument]:
        given = {**{each: GRAPH_VALID[each] for each in needed}, argument: wrong}
        check_refusal(name, lambda given=given: function(**given), argument, wrong)


WITHOUT_ARGUMENTS = {
    "barrier", "check_build", "get_current_created_window_names", "get_skip_negotiate_stage",
    "enter", "has_left", "leave", "membership", "resync", "shrink", "waits_to_join",
    "in_neighbor_machine_ranks", "in_neighbor_ranks", "is_homogeneous", "is_initialized",
    "is_machine_topo_weighted", "is_topo_weighted", "load_machine_topology", "load_topology",
    "local_rank",
    "local_size", "machine_rank", "machine_size", "mpi_threads_supported", "nccl_built",
    "out_neighbor_machine_ranks", "out_neighbor_ranks", "rank", "resume", "shutdown", "size",
    "suspend",
    "turn_off_win_ops_with_associated_p", "turn_on_win_ops_with_associated_p",
    "unified_mpi_window_model_supported"}
HANDLES = {"poll", "synchronize", "wait", "win_poll", "win_wait"}


def test_the_tables_are_whole():
    """Each public function stands in them, with each of its arguments."""
    functions = {name for name in bf.__all__ if callable(getattr(bf, name))}
    assert functions - WITHOUT_ARGUMENTS - HANDLES - set(GRAPH_ROWS) - {
        "CommunicationType", "Entry", "Loss", "Membership", "check_extension",
        "AccumAdam", "AccumAdamW",  # adam/
        "Algorithm", "Average", "Bucket", "Compression", "Option", "OuterSteps", "Round",  # own/
        "decentralize"} == set(TABLE)  # test_decentralize.py
    graphs = set(topology_util.__all__)
    assert graphs - set(GRAPH_ROWS) == {"InferSourceFromDestinationRanks",
                                        "InferDestinationFromSourceRanks"}
    of_a_start = {"store", "rank", "size"}  # tests/python/starts
    for module, table in ((bf, TABLE), (topology_util, GRAPH_ROWS)):
        for name, row in table.items():
            elsewhere = (set() if name == "use_device" else
                         of_a_start if name == "init" else {"device", "dtype"})
            assert set(inspect.signature(getattr(module, name)).parameters) - elsewhere == set(
                row), name
    for name in WITHOUT_ARGUMENTS:
        assert not inspect.signature(getattr(bf, name)).parameters, name


@pytest.mark.parametrize("name", [name for name in TABLE if any(
    parameter.default is parameter.empty
    for parameter in inspect.signature(getattr(bf, name)).parameters.values())])
def test_missing_arguments(name):
    with pytest.raises(TypeError, match=r"missing \d+ required positional argument"):
        result = getattr(bf, name)()
        result.__enter__()


@pytest.mark.parametrize("name", sorted(HANDLES))
def test_handles_of_no_call(name, rank):
    call = "synchronize" if name == "wait" else name
    for wrong in (-1, 12345):
        with pytest.raises(ValueError,
                           match=f"rank {rank}, {call}: handle: expected that of a call in flight"):
            getattr(bf, name)(wrong)
    for wrong in (None, "0", [0], torch.ones(2), True):
        with pytest.raises(TypeError,
                           match=f"rank {rank}, {call}: handle: expected a whole number, found"):
            getattr(bf, name)(wrong)


HEARD = {
    "allreduce": lambda wrong: bf.allreduce(ONE, average="yes" if wrong else True),
    "broadcast": lambda wrong: bf.broadcast(ONE, 64 if wrong else 0),
    "neighbor_allgather": lambda wrong: bf.neighbor_allgather(ONE, **({"src_ranks": 3} if wrong
                                                                      else {})),
    "win_create": lambda wrong: bf.win_create(ONE.clone(), 3 if wrong else "w"),
    "broadcast_parameters": lambda wrong: bf.broadcast_parameters(None if wrong else {"w": ONE}, 0),
    "allreduce_parameters": lambda wrong: bf.allreduce_parameters(None if wrong else {"w": ONE}),
    "broadcast_optimizer_state": lambda wrong: bf.broadcast_optimizer_state(
        None if wrong else plain()["optimizer"], 0),
    "InferSourceFromDestinationRanks": lambda wrong: bf.InferSourceFromDestinationRanks("1" if wrong
                                                                                        else []),
    "DistributedAdaptThenCombineOptimizer": lambda wrong: bf.DistributedAdaptThenCombineOptimizer(
        **{**plain(), **({"communication_type": "allreduce"} if wrong else {})}),
    "DistributedWinPutOptimizer": lambda wrong: bf.DistributedWinPutOptimizer(
        **{**plain(), **({"window_prefix": 3} if wrong else {})}),
    "DecentralizedOptimizer": lambda wrong: bf.DecentralizedOptimizer(
        **{**plain(), **({"graphs": "no such family"} if wrong else {})}),
}


@pytest.mark.parametrize("name", HEARD)
def test_peers_hear_of_a_wrong_argument(name, rank):
    """In the call in which they wait for that rank, by the user's name for it."""
    needs(2)
    for _ in range(2):
        with pytest.raises(bluefog_cpp.InvalidArgument if rank == 0 else bluefog_cpp.PeerFailure,
                           match=f"(?=.*rank 0).*{name}"):
            HEARD[name](rank == 0)
        assert bf.allreduce(torch.ones(1)).item() == 1


def test_numbers_of_other_libraries(rank, size):
    """NumPy's and torch's scalars are numbers, ranks and switches too."""
    assert bf.allreduce(ONE, average=numpy.bool_(True)).eq(1).all()
    assert bf.broadcast(ONE * (rank + 1), numpy.int64(0)).eq(1).all()
    assert bf.broadcast(ONE * (rank + 1), torch.tensor(0)).eq(1).all()
    ahead, behind = (rank + 1) % size, (rank - 1) % size
    if size > 1:
        found = bf.neighbor_allreduce(
            ONE, self_weight=numpy.float32(0.5),
            src_weights={numpy.int32(behind): torch.tensor(0.25)},
            dst_weights=numpy.array([ahead]), enable_topo_check=numpy.True_)
        assert found.eq(0.75).all()
    assert topology_util.RingGraph(numpy.int32(4)).number_of_nodes() == 4


def test_arguments_of_an_averager(rank):
    for given in ({"period": 0}, {"period": 1.5}, {"warmup_steps": -1},
                  {"communication_type": "allreduce"}):
        with pytest.raises(ValueError,
                           match=f"rank {rank}, NeighborAverager: {next(iter(given))}: expected"):
            model_averaging.NeighborAverager(**given)
    for wrong in (None, torch.ones(2), [3], "weights"):
        with pytest.raises(TypeError,
                           match=f"rank {rank}, average_parameters: params: expected .*found"):
            model_averaging.NeighborAverager().average_parameters(wrong)
