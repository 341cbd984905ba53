"""`neighbor_allreduce_.prepare` and `neighbor_allreduce_multi_`: the bits of the plain calls."""

import copy
import pickle

import networkx as nx
import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from conftest import needs


def values(rank, *shape, dtype=torch.float32):
    torch.manual_seed(rank)
    return torch.randn(shape).to(dtype)


# ---- prepared calls


@pytest.mark.parametrize("dtype", (torch.float16, torch.float32, torch.float64))
@pytest.mark.parametrize("shape", ((), (1,), (3, 2), (0,), (300, 401)))
def test_a_prepared_call_is_the_plain_one(shape, dtype, rank):
    x = values(rank, *shape, dtype=dtype)
    expected = x.clone()
    call = bf.neighbor_allreduce_.prepare(x)
    for _ in range(3):
        version = x._version
        assert call() is x and x._version == version + 1
        assert bf.neighbor_allreduce_(expected).equal(x)
        x += rank
        expected += rank


def test_a_prepared_call_follows_the_topology(rank, size):
    x = torch.full((4,), float(rank))
    call = bf.neighbor_allreduce_.prepare(x)
    for make in (topology_util.RingGraph, topology_util.StarGraph,
                 topology_util.FullyConnectedGraph):
        bf.set_topology(make(size), is_weighted=True)
        for _ in range(2):
            x.fill_(rank)
            result = call().clone()
            assert result.equal(bf.neighbor_allreduce(torch.full((4,), float(rank))))


def test_a_prepared_call_compares_the_topologies(rank, size):
    needs(3)
    x = torch.full((4,), float(rank))
    call = bf.neighbor_allreduce_.prepare(x)
    call()
    bf.set_topology((topology_util.RingGraph if rank == 0 else topology_util.StarGraph)(size))
    x.fill_(rank)
    prepared_now = bf.neighbor_allreduce_.prepare(x)
    for wrong in (lambda: bf.neighbor_allreduce_(x), call, prepared_now, call):
        with pytest.raises(bluefog_cpp.Error):
            wrong()
        assert x.equal(torch.full((4,), float(rank)))
    bf.set_topology(topology_util.RingGraph(size))
    expected = bf.neighbor_allreduce(x)
    assert call().equal(expected)


def test_preparing_is_no_call(rank, size):
    x = torch.full((4,), float(rank))
    bf.set_topology(topology_util.RingGraph(size))
    calls = [bf.neighbor_allreduce_.prepare(x)] * (rank + 1)
    expected = bf.neighbor_allreduce(x)
    assert calls[-1]().equal(expected)


def test_a_prepared_call_finds_new_memory(rank):
    x = values(rank, 8)
    call = bf.neighbor_allreduce_.prepare(x)
    call()
    for new in (values(rank, 8), values(rank, 3, 5), values(rank, 6, dtype=torch.float64)):
        old = x.data.clone()
        before = x.data
        x.data = new.clone()
        call()
        assert x.equal(bf.neighbor_allreduce_(new)) and before.equal(old)


def test_prepared_weights(rank, size):
    needs(2)
    left, right = (rank - 1) % size, (rank + 1) % size
    x, y = torch.full((3,), float(rank)), torch.full((3,), float(rank))
    weights = {left: 0.25}
    for check in (True, False):
        call = bf.neighbor_allreduce_.prepare(x, self_weight=0.75, src_weights=weights,
                                              dst_weights=[right], enable_topo_check=check)
        weights[left] = 1.0
        for _ in range(2):
            call()
            bf.neighbor_allreduce_(y, self_weight=0.75, src_weights={left: 0.25},
                                   dst_weights=[right])
            assert x.equal(y)
        weights[left] = 0.25
    weights = {left: 0.5}
    call = bf.neighbor_allreduce_.prepare(x, self_weight=0.5, src_weights=weights)
    weights[left] = 1.0
    for make in (topology_util.ExponentialGraph, topology_util.RingGraph):
        bf.set_topology(make(size))
        bf.neighbor_allreduce_(y, self_weight=0.5, src_weights={left: 0.5})
        assert call().equal(y)


@pytest.mark.parametrize("make", (lambda x: x.t(), lambda x: x[:, ::2]))
def test_a_prepared_tensor_may_have_gaps(make, rank):
    x = values(rank, 6, 4)
    view, expected = make(x), make(x).clone()
    call = bf.neighbor_allreduce_.prepare(view)
    for _ in range(2):
        assert call().equal(bf.neighbor_allreduce_(expected))


@pytest.mark.parametrize("change", (lambda x: x.t(), lambda x: torch._neg_view(-x),
                                    lambda x: torch.zeros(2, 6)[:, ::2] + x.t()))
def test_a_prepared_tensor_may_become_another_kind_of_view(change, rank):
    x = values(rank, 3, 2)
    expected = x.clone()
    call = bf.neighbor_allreduce_.prepare(x)
    call()
    bf.neighbor_allreduce_(expected)
    x.data = change(x.data) if rank == 0 else change(x.data).clone()
    assert call().equal(bf.neighbor_allreduce_(change(expected).clone()))


def test_a_prepared_call_leaves_lazy_copies_alone(rank):
    x = torch.full((4,), float(rank))
    call = bf.neighbor_allreduce_.prepare(x)
    copy_of_x = torch._lazy_clone(x)
    call()
    assert copy_of_x.equal(torch.full((4,), float(rank)))


def test_a_prepared_call_is_not_copied(rank):
    call = bf.neighbor_allreduce_.prepare(torch.ones(2))
    for duplicate in (copy.deepcopy, copy.copy, pickle.dumps):
        with pytest.raises(TypeError, match=f"rank {rank}, neighbor_allreduce_: a prepared call"):
            duplicate(call)


def test_old_names_of_prepared_arguments(rank):
    x = torch.full((3,), float(rank))
    weights = {source: 0.5 / len(bf.in_neighbor_ranks()) for source in bf.in_neighbor_ranks()}
    expected = bf.neighbor_allreduce(x, self_weight=0.5, src_weights=weights)
    with pytest.warns(DeprecationWarning, match="prepare: the argument 'neighbor_weights'"):
        call = bf.neighbor_allreduce_.prepare(x, self_weight=0.5, neighbor_weights=weights)
    assert call().equal(expected)


def test_prepared_parameters(rank):
    parameter = torch.nn.Parameter(values(rank, 4))
    expected = parameter.detach().clone()
    assert bf.neighbor_allreduce_.prepare(parameter)().equal(bf.neighbor_allreduce_(expected))


def test_prepared_calls_of_other_tensors_are_a_mismatch(rank):
    needs(2)
    x = torch.ones(2, 3) if rank == 0 else torch.ones(3, 2)
    with pytest.raises(bluefog_cpp.MismatchError, match=r"\[2, 3\].*\[3, 2\]|\[3, 2\].*\[2, 3\]"):
        bf.neighbor_allreduce_.prepare(x)()
    assert bf.allreduce(torch.ones(1)).item() == 1


@pytest.mark.parametrize(("wrong", "said"), (
    (lambda: bf.neighbor_allreduce_.prepare([1.0]), "prepare: expected a torch.Tensor"),
    (lambda: bf.neighbor_allreduce_.prepare(torch.ones(1).expand(3)), "have memory of their own"),
    (lambda: bf.neighbor_allreduce_.prepare(torch.ones(1), name=3), "name: expected"),
    (lambda: bf.neighbor_allreduce_.prepare(torch.ones(1), self_weight=1.0), "no src_weights"),
    (lambda: bf.neighbor_allreduce_.prepare(torch.ones(3, dtype=torch.int32)), "found int32")))
def test_what_cannot_be_prepared(wrong, said, rank):
    with pytest.raises(bluefog_cpp.InvalidArgument if "Tensor" not in said else TypeError,
                       match=said) as caught:
        wrong()
    assert f"rank {rank}" in str(caught.value)


def test_a_prepared_call_ends_with_its_ranks(rank):
    x = torch.ones(2)
    call = bf.neighbor_allreduce_.prepare(x)
    bf.barrier()
    bf.shutdown()
    with pytest.raises(bluefog_cpp.NotInitialized):
        call()
    with pytest.raises(bluefog_cpp.NotInitialized):
        bf.neighbor_allreduce_.prepare(x)
    bf.init()
    with pytest.raises(bluefog_cpp.StateError, match=f"rank {rank}.*prepare it again"):
        call()
    assert bf.neighbor_allreduce_.prepare(x)().equal(torch.ones(2))


def test_the_profiler_sees_prepared_calls(rank):
    call = bf.neighbor_allreduce_.prepare(torch.ones(2))
    with torch.profiler.profile() as profile:
        call()
    assert "bluefog::neighbor_allreduce_" in {event.key for event in profile.key_averages()}


# ---- several tensors


def several(rank):
    layers = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Linear(5, 3))
    torch.manual_seed(rank)
    for parameter in layers.parameters():
        torch.nn.init.normal_(parameter)
    return [*layers.parameters(), values(rank, 3, dtype=torch.float64), values(rank, 0),
            values(rank, 1_100_000), values(rank, 6, 4).t(), values(rank, 2, dtype=torch.bfloat16),
            torch.randn(()) * rank]


@pytest.mark.parametrize("is_dynamic", (False, True))
def test_many_tensors_get_the_bits_of_single_calls(is_dynamic, rank, size):
    weights = {}
    if is_dynamic:
        left, right = (rank - 1) % size, (rank + 1) % size
        weights = {"self_weight": 0.5, "src_weights": {left: 0.5}, "dst_weights": [right]}
    single, together = several(rank), several(rank)
    for tensor in single:
        bf.neighbor_allreduce_(tensor, **weights)
    versions = [tensor._version for tensor in together]
    given = iter(together) if is_dynamic else tuple(together)
    results = bf.neighbor_allreduce_multi_(given, name="all", **weights)
    assert len(results) == len(together)
    for result, tensor, expected, version in zip(results, together, single, versions):
        assert result is tensor and tensor.equal(expected) and tensor._version > version


def test_views_that_lie_between_each_other_are_apart(rank):
    x, y = values(rank, 12), values(rank, 12)
    bf.neighbor_allreduce_multi_([x[::2], x[1::2]])
    assert x.equal(bf.neighbor_allreduce_(y))


def test_lists_that_differ_are_a_mismatch(rank):
    needs(2)
    tensors = [torch.ones(2, 3) if rank == 0 else torch.ones(3, 2), torch.full((4,), float(rank))]
    with pytest.raises(bluefog_cpp.MismatchError, match="shapes"):
        bf.neighbor_allreduce_multi_(tensors)
    with pytest.raises(bluefog_cpp.MismatchError, match="buffers"):
        bf.neighbor_allreduce_multi_(tensors[1:] if rank == 0 else [])
    assert tensors[1].equal(torch.full((4,), float(rank)))
    assert bf.neighbor_allreduce_multi_([]) == []


@pytest.mark.parametrize(("wrong", "kind", "said"), (
    (lambda x: x, TypeError, "tensors: expected a list of torch.Tensor, found a Tensor of shape"),
    (lambda x: {"x": x}, TypeError, "tensors: expected a list of torch.Tensor"),
    (lambda x: [x, 1.0], TypeError, "tensors: .*found 1.0 at place 1"),
    (lambda x: [x, x.to_sparse()], bluefog_cpp.UnsupportedError, r"tensors\[1\]: .*sparse"),
    (lambda x: [x, x.long()], bluefog_cpp.InvalidArgument, "found int64.*it is buffer 1"),
    (lambda x: [x, torch.ones(1), x], bluefog_cpp.InvalidArgument, "buffers 0 and 2 of 3 overlap"),
    (lambda x: [x[::2], torch.ones(1), x], bluefog_cpp.InvalidArgument,
     "tensors: .*tensors 0 and 2 of 3 have elements in common"),
    (lambda x: [x, torch.nn.LazyLinear(2).weight], RuntimeError, r"rank \d, .*tensors\[1\]")))
def test_lists_that_cannot_be_averaged(wrong, kind, said, rank):
    x = torch.ones(4)
    peers_hear = bf.size() > 1 and rank > 0
    with pytest.raises(bluefog_cpp.PeerFailure if peers_hear else kind, match=said):
        bf.neighbor_allreduce_multi_([x, torch.ones(1)] if peers_hear else wrong(x))
    assert bf.allreduce(torch.ones(1)).item() == 1


# ---- whom calls in place wait for

LONG = 100_000


def calls_in_place(x, **options):
    """The ways of making one, each with the same result."""
    def nonblocking():
        return bf.wait(bf.neighbor_allreduce_nonblocking_(x, **options))

    return (lambda: bf.neighbor_allreduce_(x, **options),
            bf.neighbor_allreduce_.prepare(x, **options), nonblocking,
            lambda: bf.neighbor_allreduce_multi_([x], **options)[0])


@pytest.mark.parametrize("synchronisation", ("auto", "component", "neighbours"))
def test_each_way_of_waiting_has_the_same_bits(synchronisation, rank):
    plain = values(rank, LONG)
    expected = bf.neighbor_allreduce(plain)
    x = bf.shared_zeros(LONG)
    for call in calls_in_place(x, synchronisation=synchronisation):
        x.copy_(plain)
        assert call().equal(expected)


def test_a_rank_may_begin_after_another_has_ended(rank, size):
    """Rank 0 hears nobody, and rank 1 waits for a word of it before its own call."""
    needs(2)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(size))
    graph.add_edge(0, 1)
    bf.set_topology(graph)
    x = bf.shared_zeros(LONG)
    word = torch.zeros(1)
    bf.neighbor_allreduce(x)  # from now on the ranks' graphs are known to be one
    for call in calls_in_place(x, synchronisation="neighbours"):
        x.fill_(rank)
        if rank == 1:
            bf.pair_gossip(word, 0)
        call()
        if rank == 0:
            bf.pair_gossip(word, 1)
        assert x.equal(torch.full((LONG,), 0.5 if rank == 1 else float(rank)))


def test_a_prepared_call_names_the_words_for_its_waits(rank):
    with pytest.raises(bluefog_cpp.InvalidArgument,
                       match="synchronisation: expected one of auto, component, neighbours, "
                             "found 'neighbors'"):
        bf.neighbor_allreduce_.prepare(torch.zeros(2), synchronisation="neighbors")
