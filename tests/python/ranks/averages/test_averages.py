"""Expected values are exact: small integers, and weights that are powers of two, or a dense W."""

import numpy
import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from bluefog_cpp.util import env
from conftest import needs

FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int32, torch.int64)


def value_of(rank, shape=(3, 2), dtype=torch.float32):
    return torch.full(shape, float(rank + 1), dtype=dtype)


def expected_of(graph, rank, is_weighted):
    """Row `rank` of W times the values (1, 2, …, n)."""
    matrix = numpy.zeros(graph.number_of_nodes())
    for j in {*graph.predecessors(rank), rank}:
        weight = graph.edges[j, rank].get("weight", 1.0) if graph.has_edge(j, rank) else 0.0
        matrix[j] = weight if is_weighted else 1.0
    if not is_weighted:
        matrix /= matrix.sum()
    return float(matrix @ numpy.arange(1, len(matrix) + 1))


@pytest.mark.parametrize("is_weighted", (False, True))
@pytest.mark.parametrize("make", (topology_util.ExponentialGraph, topology_util.RingGraph,
                                  topology_util.StarGraph, topology_util.MeshGrid2DGraph,
                                  topology_util.FullyConnectedGraph))
def test_static_graphs(make, is_weighted, rank, size):
    bf.set_topology(make(size), is_weighted)
    x = value_of(rank, dtype=torch.float64)
    result = bf.neighbor_allreduce(x)
    # The sum with W's weights rounds differently than numpy's product.
    assert result.allclose(torch.full_like(x, expected_of(make(size), rank, is_weighted)),
                           atol=1e-14)
    assert x.equal(value_of(rank, dtype=torch.float64))


@pytest.mark.parametrize("dtype", FLOATING)
def test_dtypes(dtype, rank, size):
    bf.set_topology(topology_util.RingGraph(size, connect_style=2), is_weighted=True)
    mean = (rank + 1 + (rank - 1) % size + 1) / 2
    result = bf.neighbor_allreduce(value_of(rank, dtype=dtype))
    assert result.dtype == dtype and result.equal(torch.full((3, 2), mean, dtype=dtype))
    assert bf.allreduce(value_of(rank, dtype=dtype), average=False)[0, 0] == size * (size + 1) // 2


@pytest.mark.parametrize("dtype", FLOATING)
def test_equal_values_stay_that_value(dtype, rank, size):
    values = torch.randn(1000, generator=torch.Generator().manual_seed(1)).to(dtype)
    for make in (topology_util.FullyConnectedGraph, topology_util.ExponentialGraph,
                 topology_util.RingGraph, topology_util.StarGraph):
        for is_weighted in (False, True):
            bf.set_topology(make(size), is_weighted)
            assert bf.neighbor_allreduce(values).equal(values)
    assert bf.allreduce(values).equal(values)


@pytest.mark.parametrize("dtype", FLOATING)
def test_means_of_the_largest_values_are_finite(dtype, rank, size):
    largest = torch.full((1000,), torch.finfo(dtype).max, dtype=dtype)
    assert bf.allreduce(largest).equal(largest)
    assert bf.neighbor_allreduce(largest).equal(largest)


def test_integers_are_summed_and_not_averaged(rank, size):
    for dtype in INTEGERS:
        x = torch.full((5,), rank + 1, dtype=dtype)
        assert bf.allreduce(x, average=False).tolist() == [size * (size + 1) // 2] * 5
        for average in (bf.allreduce, bf.neighbor_allreduce):
            with pytest.raises(ValueError, match="float"):
                average(x)
    with pytest.raises(bluefog_cpp.UnsupportedError, match="complex64"):
        bf.allreduce(torch.zeros(2, dtype=torch.complex64))
    bf.barrier()


def test_layouts(rank, size):
    bf.set_topology(topology_util.FullyConnectedGraph(size))
    mean = (size + 1) / 2
    base = value_of(rank, (4, 6))
    image = value_of(rank, (2, 3, 4, 5)).to(memory_format=torch.channels_last)
    for x in (base.t(), base[:, ::2], base[1:, 1:], image, value_of(rank, ()), torch.empty(0, 3),
              torch.nn.Parameter(base.clone()), base.expand(3, 4, 6)):
        for average in (bf.neighbor_allreduce, bf.allreduce):
            result = average(x)
            assert result.shape == x.shape and not result.requires_grad
            assert result.allclose(torch.full_like(result, mean))


def test_in_place(rank, size):
    bf.set_topology(topology_util.FullyConnectedGraph(size))
    mean = (size + 1) / 2
    for call in (bf.neighbor_allreduce_, bf.allreduce_,
                 lambda x: bf.wait(bf.neighbor_allreduce_nonblocking_(x)),
                 lambda x: bf.wait(bf.allreduce_nonblocking_(x))):
        for x in (value_of(rank), value_of(rank, (4, 4))[:, 1:3],
                  torch.nn.Parameter(value_of(rank))):
            version = x._version
            result = call(x)
            assert result is x and x._version > version
            assert x.detach().allclose(torch.full(x.shape, mean))


def test_a_changed_tensor_is_not_differentiated_through(rank):
    w = torch.nn.Parameter(value_of(rank))
    loss = (w * w).sum()
    bf.allreduce_(w)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_nonblocking_calls_complete_in_any_order_of_waits(rank, size):
    bf.set_topology(topology_util.FullyConnectedGraph(size))
    handles = [bf.neighbor_allreduce_nonblocking(value_of(rank) * k, name=f"x{k}")
               for k in range(20)]
    for k in reversed(range(20)):
        assert bf.synchronize(handles[k]).allclose(torch.full((3, 2), k * (size + 1) / 2))
    with pytest.raises(ValueError, match="handle"):
        bf.poll(handles[0])
    for unknown in (-1, 10_000, None, "x", [1]):
        with pytest.raises(ValueError, match="handle"):
            bf.wait(unknown)


def test_poll(rank):
    handle = bf.allreduce_nonblocking(value_of(rank))
    while not bf.poll(handle):
        pass
    bf.wait(handle)


def test_weights_of_the_call(rank, size):
    bf.set_topology(topology_util.RingGraph(size))
    neighbors = bf.in_neighbor_ranks()
    result = bf.neighbor_allreduce(value_of(rank), self_weight=0.5,
                                   src_weights=dict.fromkeys(neighbors, 0.25))
    assert result[0, 0] == 0.5 * (rank + 1) + sum(0.25 * (j + 1) for j in neighbors)
    # Neighbours that are left out count nothing.
    result = bf.neighbor_allreduce(value_of(rank), self_weight=2.0,
                                   src_weights=dict.fromkeys(neighbors[:1], 1.0))
    assert result[0, 0] == 2 * (rank + 1) + sum(j + 1 for j in neighbors[:1])


def test_wrong_weights_are_value_errors(rank, size):
    wrong = [dict(self_weight=0.5), dict(src_weights={}), dict(dst_weights=[]),
             dict(self_weight=1.0, dst_weights=[]),
             dict(self_weight=1.0, src_weights={}, dst_weights=[size]),
             dict(self_weight=1.0, src_weights={rank: 1.0}, dst_weights=[]),
             dict(self_weight=float("nan"), src_weights={}, dst_weights=[]),
             dict(self_weight=1.0, src_weights={size + 3: 0.5})]
    if size > 1:
        other = (rank + 1) % size
        wrong.append(dict(self_weight=1.0, src_weights={}, dst_weights=[other, other]))
    for arguments in wrong:
        for call in (bf.neighbor_allreduce, bf.neighbor_allreduce_,
                     bf.neighbor_allreduce_nonblocking):
            with pytest.raises(ValueError):
                call(value_of(rank), **arguments)
    assert bf.allreduce(torch.ones(1), average=False) == size


def test_a_refused_call_is_an_error_on_all_ranks(rank, size):
    needs(2)
    bf.set_topology(topology_util.FullyConnectedGraph(size))
    with pytest.raises((ValueError, bluefog_cpp.PeerFailure), match="rank 0"):
        bf.neighbor_allreduce(value_of(rank), self_weight=0.5 if rank == 0 else None)
    assert bf.allreduce(torch.ones(1), average=False) == size


def test_dynamic_steps(rank, size):
    for step in range(1, 6):
        distance = step % size
        send, receive = (rank + distance) % size, (rank - distance) % size
        if distance == 0:
            result = bf.neighbor_allreduce(value_of(rank), self_weight=1.0, src_weights={},
                                           dst_weights=[])
            assert result.equal(value_of(rank))
            continue
        result = bf.neighbor_allreduce(value_of(rank), self_weight=0.5, src_weights={receive: 0.25},
                                       dst_weights={send: 2.0}, enable_topo_check=step % 2 == 0)
        assert result[0, 0] == 0.5 * (rank + 1) + 0.5 * (receive + 1)
        result = bf.neighbor_allreduce(value_of(rank), self_weight=0.5, src_weights={receive: 0.5},
                                       dst_weights=[send])
        assert result[0, 0] == 0.5 * (rank + 1) + 0.5 * (receive + 1)


def test_senders_without_receivers_are_an_error_on_every_rank(rank, size):
    needs(2)
    with pytest.raises(bluefog_cpp.MismatchError, match="rank 0"):
        bf.neighbor_allreduce(value_of(rank), self_weight=1.0, src_weights={},
                              dst_weights=[1] if rank == 0 else [])
    assert bf.allreduce(torch.ones(1), average=False) == size


def test_different_topologies_are_an_error_on_every_rank(rank, size):
    needs(3)
    bf.set_topology(topology_util.RingGraph(size, connect_style=1 if rank == 0 else 2))
    with pytest.raises(bluefog_cpp.MismatchError):
        bf.neighbor_allreduce(value_of(rank))


def test_different_shapes_and_names_are_errors_that_name_both(rank, size):
    needs(2)
    bf.set_topology(topology_util.FullyConnectedGraph(size))
    with pytest.raises((ValueError, bluefog_cpp.PeerFailure)) as raised:
        bf.neighbor_allreduce(torch.ones(3 if rank == 0 else 4), name="x")
    assert "[3]" in str(raised.value) or "[4]" in str(raised.value)
    with pytest.raises((ValueError, bluefog_cpp.PeerFailure)) as raised:
        bf.neighbor_allreduce(torch.ones((2, 3) if rank == 0 else (3, 2)))
    assert "[2, 3]" in str(raised.value) or "[3, 2]" in str(raised.value)
    with pytest.raises((ValueError, bluefog_cpp.PeerFailure)):
        bf.neighbor_allreduce(torch.ones(3), name=f"name {min(rank, 1)}")
    assert bf.allreduce(torch.ones(1), average=False) == size


def test_old_argument_names_work_with_a_warning(rank, size):
    bf.set_topology(topology_util.RingGraph(size))
    weights = dict.fromkeys(bf.in_neighbor_ranks(), 0.25)
    new = bf.neighbor_allreduce(value_of(rank), self_weight=0.5, src_weights=weights)
    with pytest.warns(DeprecationWarning, match="src_weights"):
        old = bf.neighbor_allreduce(value_of(rank), self_weight=0.5, neighbor_weights=weights)
    assert old.equal(new)
    with pytest.warns(DeprecationWarning, match="dst_weights"):
        bf.neighbor_allreduce(value_of(rank), self_weight=0.5, src_weights=weights,
                              send_neighbors=bf.out_neighbor_ranks())
    with pytest.raises(TypeError, match="both"):
        bf.neighbor_allreduce(value_of(rank), self_weight=0.5, src_weights=weights,
                              neighbor_weights=weights)
    with pytest.raises(TypeError):
        bf.neighbor_allreduce(value_of(rank), weights=1)
    bf.barrier()


def test_things_that_are_no_tensors_are_type_errors():
    for call in (bf.neighbor_allreduce, bf.allreduce, bf.allgather):
        with pytest.raises(TypeError):
            call([1.0, 2.0])
    with pytest.raises(bluefog_cpp.UnsupportedError):
        bf.allreduce_(torch.ones(2, 2).to_sparse())
    bf.barrier()


@pytest.fixture
def machines(size):
    """Two ranks a machine where they can be paired; the number of machines."""
    bf.shutdown()
    per_machine = 2 if size % 2 == 0 else 1
    with env(BLUEFOG_NODES_PER_MACHINE=str(per_machine)):
        bf.init()
    return size // per_machine


def test_hierarchical(machines, rank, size):
    per_machine = size // machines
    means = [sum(m * per_machine + k + 1 for k in range(per_machine)) / per_machine
             for m in range(machines)]
    own = bf.machine_rank()
    bf.set_machine_topology(topology_util.RingGraph(machines))
    x = value_of(rank)
    heard = bf.in_neighbor_machine_ranks()
    result = bf.hierarchical_neighbor_allreduce(x)
    assert result.allclose(torch.full((3, 2),
                                      sum(means[m] for m in {own, *heard}) / (len(heard) + 1)))
    assert x.equal(value_of(rank))
    left, right = (own - 1) % machines, (own + 1) % machines
    sources = {left: 0.5} if machines > 1 else {}
    arguments = dict(self_weight=0.5, src_machine_weights=sources,
                     dst_machine_weights=[right] if machines > 1 else [])
    result = bf.hierarchical_neighbor_allreduce(x, enable_topo_check=True, **arguments)
    assert result[0, 0] == 0.5 * means[own] + sum(0.5 * means[m] for m in sources)
    assert bf.wait(bf.hierarchical_neighbor_allreduce_nonblocking(x, **arguments)).equal(result)
    assert bf.allreduce(x, is_hierarchical_local=True)[0, 0] == means[own]


def test_hierarchical_calls_that_cannot_be(machines, rank):
    with pytest.raises(RuntimeError, match="set_machine_topology"):
        bf.hierarchical_neighbor_allreduce(value_of(rank))
    with pytest.raises(ValueError, match="together"):
        bf.hierarchical_neighbor_allreduce(value_of(rank), self_weight=1.0)
    with pytest.warns(DeprecationWarning):
        bf.hierarchical_neighbor_allreduce(value_of(rank), self_weight=1.0,
                                           neighbor_machine_weights={},
                                           send_neighbor_machines=[])


def test_pair_gossip(rank, size):
    needs(2)
    partner = rank ^ 1
    if partner < size:
        assert bf.pair_gossip(value_of(rank), partner)[0, 0] == (rank + partner + 2) / 2
        handle = bf.pair_gossip_nonblocking(value_of(rank), partner, 0.25, 0.5)
        assert bf.wait(handle)[0, 0] == 0.25 * (rank + 1) + 0.5 * (partner + 1)
    for wrong in (rank, -1, size):
        with pytest.raises(ValueError):
            bf.pair_gossip(value_of(rank), wrong)
    with pytest.raises(ValueError, match="together"):
        bf.pair_gossip(value_of(rank), (rank + 1) % size, self_weight=0.5)
