"""Windows. Barriers order what one-sided calls leave unordered; values are small integers."""

import contextlib

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from conftest import needs


def full(value, shape=(3, 2)):
    return torch.full(shape, float(value), dtype=torch.float64)


@pytest.fixture
def x(rank, size):
    """Rank r's window tensor is r + 1, over a ring."""
    bf.set_topology(topology_util.RingGraph(size), is_weighted=False)
    tensor = full(rank + 1)
    assert bf.win_create(tensor, "x")
    return tensor


def mean_with_neighbors(value_of, rank):
    heard = bf.in_neighbor_ranks()
    return (value_of(rank) + sum(value_of(j) for j in heard)) / (len(heard) + 1)


def test_names(x):
    assert bf.get_current_created_window_names() == ["x"]
    assert bf.win_create(full(1), "a")
    assert bf.get_current_created_window_names() == ["a", "x"]
    assert not bf.win_create(full(1), "a")
    assert bf.win_free("a") and not bf.win_free("a")
    assert bf.win_free() and bf.get_current_created_window_names() == []


def test_buffers_hold_the_own_value_at_first(x, rank):
    assert bf.win_update("x").allclose(full(rank + 1))


def test_buffers_hold_zeros_on_request(rank, size):
    bf.set_topology(topology_util.RingGraph(size))
    bf.win_create(full(8), "z", zero_init=True)
    assert bf.win_update("z", self_weight=0.5,
                         neighbor_weights=dict.fromkeys(bf.in_neighbor_ranks(), 1.0)).equal(full(4))


def test_put_and_update(x, rank):
    assert bf.win_put(x, "x")
    bf.barrier()
    assert bf.get_win_version("x") == dict.fromkeys(bf.in_neighbor_ranks(), 1)
    version = x._version
    result = bf.win_update("x")
    assert result is x and x._version > version
    assert result.allclose(full(mean_with_neighbors(lambda r: r + 1, rank)))
    assert bf.get_win_version("x") == dict.fromkeys(bf.in_neighbor_ranks(), 0)


def test_put_scales_the_tensor_afterwards(x, rank):
    others = bf.out_neighbor_ranks()
    bf.neighbor_win_put(x, "x", self_weight=0.5, dst_weights=dict.fromkeys(others, 2.0))
    assert x.equal(full((rank + 1) / 2))
    bf.barrier()
    expected = (rank + 1) / 2 + sum(2 * (j + 1) for j in bf.in_neighbor_ranks())
    assert bf.win_update_then_collect("x").equal(full(expected))
    # The buffers are empty now.
    assert bf.win_update_then_collect("x").equal(full(expected))


def test_accumulate(rank, size):
    bf.set_topology(topology_util.RingGraph(size))
    x = full(rank + 1)
    bf.win_create(x, "x", zero_init=True)
    for _ in range(3):
        bf.win_accumulate(x, "x", dst_weights=bf.out_neighbor_ranks(), require_mutex=True)
    bf.barrier()
    expected = rank + 1 + 3 * sum(j + 1 for j in bf.in_neighbor_ranks())
    assert bf.win_update_then_collect("x").equal(full(expected))


def test_get(x, rank):
    assert bf.win_get("x", src_weights=dict.fromkeys(bf.in_neighbor_ranks(), 2.0))
    bf.barrier()
    result = bf.win_update("x", self_weight=1.0,
                           neighbor_weights=dict.fromkeys(bf.in_neighbor_ranks(), 1.0),
                           clone=True)
    assert result is not x and x.equal(full(rank + 1))
    assert result.equal(full(rank + 1 + sum(2 * (j + 1) for j in bf.in_neighbor_ranks())))


def test_get_finds_what_was_published(x, rank):
    x.fill_(10.0 * (rank + 1))
    assert bf.win_publish("x")
    bf.barrier()
    bf.win_get("x")
    weights = dict.fromkeys(bf.in_neighbor_ranks(), 1.0)
    assert bf.win_update("x", self_weight=0.0, neighbor_weights=weights, clone=True).equal(
        full(sum(10 * (j + 1) for j in weights)))
    with pytest.raises(bluefog_cpp.InvalidArgument,
                       match=rf"^rank {rank}, win_publish: name: expected that of a window"):
        bf.win_publish("y")
    bf.barrier()


def test_nonblocking(x, rank):
    handles = [bf.win_put_nonblocking(x, "x"), bf.neighbor_win_get_nonblocking("x"),
               bf.win_accumulate_nonblocking(full(0), "x")]
    while not bf.win_poll(handles[-1]):
        pass
    assert all(bf.win_wait(handle) for handle in handles)
    bf.barrier()
    assert bf.win_update("x").allclose(full(mean_with_neighbors(lambda r: r + 1, rank)))
    with pytest.raises(ValueError):
        bf.win_wait(handles[0])


def test_reset_empties_the_buffers_that_were_used(x, rank):
    bf.win_put(x, "x")
    bf.barrier()
    bf.win_update("x", reset=True)
    weights = dict.fromkeys(bf.in_neighbor_ranks(), 1.0)
    assert bf.win_update("x", self_weight=0.0, neighbor_weights=weights, clone=True).equal(full(0))


def test_mutexes_exclude(rank, size):
    needs(2)
    bf.set_topology(topology_util.FullyConnectedGraph(size))
    counter = torch.zeros(1, dtype=torch.float64)
    bf.win_create(counter, "count", zero_init=True)
    for _ in range(20):
        with bf.win_mutex("count", ranks=[0]):
            pass
        with bf.win_mutex("count"):
            pass
    with bf.win_lock("count"):
        bf.win_update("count")
    with bf.win_mutex("count", for_self=True):
        pass
    with pytest.raises(ValueError):
        with bf.win_mutex("count", ranks=[size]):
            pass


def test_associated_p(rank, size):
    bf.set_topology(topology_util.RingGraph(size))
    bf.turn_on_win_ops_with_associated_p()
    x = full(rank + 1)
    bf.win_create(x, "p", zero_init=True)
    assert bf.win_associated_p("p") == 1.0
    out = bf.out_neighbor_ranks()
    share = 1 / (len(out) + 1)
    for _ in range(60):
        bf.win_accumulate(x, "p", self_weight=share, dst_weights=dict.fromkeys(out, share),
                          require_mutex=True)
        bf.barrier()
        bf.win_update_then_collect("p")
        bf.barrier()
    total = bf.allreduce(torch.tensor([bf.win_associated_p("p")], dtype=torch.float64),
                         average=False)
    assert total.allclose(torch.full((1,), float(size), dtype=torch.float64))
    # Push-sum converges to the mean, linearly: 60 rounds are below 1e-9 for four ranks.
    assert (x / bf.win_associated_p("p")).allclose(full((size + 1) / 2), atol=1e-9)
    bf.turn_off_win_ops_with_associated_p()


def test_the_topology_stays_while_windows_exist(x, size):
    assert bf.set_topology(topology_util.RingGraph(size))
    other = topology_util.StarGraph(size)
    if topology_util.IsTopologyEquivalent(other, topology_util.RingGraph(size)):
        return
    assert not bf.set_topology(other)
    bf.win_free()
    assert bf.set_topology(other)


def test_a_mutex_that_this_thread_holds(x, rank, size):
    """Nobody waits for himself, and nothing has moved."""
    needs(2)
    bf.set_topology(topology_util.FullyConnectedGraph(size))
    held = bf.out_neighbor_ranks()[-1]
    value, versions = x.clone(), bf.get_win_version("x")
    for call in (lambda: bf.win_put(x, "x", self_weight=0.5, require_mutex=True),
                 lambda: bf.win_accumulate(x, "x", self_weight=0.5, require_mutex=True),
                 lambda: bf.win_put_nonblocking(x, "x", require_mutex=True),
                 lambda: bf.win_get("x", require_mutex=True),
                 lambda: bf.win_mutex("x").__enter__()):
        with bf.win_mutex("x", ranks=[held]):
            with pytest.raises(bluefog_cpp.StateError,
                               match=f"rank {rank}, window 'x', .*mutex of rank {held}, .*wait for "
                                     "itself"):
                call()
    with bf.win_lock("x"), pytest.raises(bluefog_cpp.StateError,
                                         match=f"the mutex of rank {rank},"):
        bf.win_update_then_collect("x")
    assert x.equal(value)
    bf.barrier()
    assert bf.get_win_version("x") == versions
    bf.barrier()
    assert bf.win_put(x, "x", require_mutex=True)
    bf.barrier()


def test_one_rank_that_knows_no_such_window(x, rank):
    needs(2)
    with pytest.raises(bluefog_cpp.PeerFailure,
                       match="win_free: there is no window 'other'") if rank else (
                               contextlib.nullcontext()):
        assert not bf.win_free("x" if rank else "other")
    assert bf.get_current_created_window_names() == ["x"]
    assert bf.win_free("x")


def test_wrong_use(x, rank, size):
    for call in (lambda: bf.win_put(x, "y"), lambda: bf.win_get("y"), lambda: bf.win_update("y"),
                 lambda: bf.get_win_version("y"), lambda: bf.win_associated_p("y"),
                 lambda: bf.win_put(x, "x", dst_weights={size: 1.0}),
                 lambda: bf.win_put(x, "x", dst_weights=[rank]),
                 lambda: bf.win_get("x", src_weights={rank: 1.0}),
                 lambda: bf.win_put(full(1, (4, 4)), "x"),
                 lambda: bf.win_put(x.float(), "x"),
                 lambda: bf.win_update("x", self_weight=1.0),
                 lambda: bf.win_update("x", 1.0, {size: 1.0})):
        with pytest.raises(ValueError):
            call()
    with pytest.raises(ValueError, match=f"rank {rank}, win_create.*contiguous"):
        bf.win_create(full(1, (4, 4)).t()[:, 1:], "y")
    with pytest.raises(ValueError,
                       match=f"rank {rank}, win_mutex: ranks: expected ranks of 0 to {size - 1}, "
                                         f"found {size}"):
        with bf.win_mutex("x", ranks=[size]):
            pass


def test_a_tensor_of_another_shape_than_the_windows_names_both(x, rank):
    """A shape of as many elements too: transposed values would be averaged with others."""
    for call in (bf.win_put, bf.win_accumulate):
        for shape in ((2, 3), (6,), (3, 1), (3, 2, 1)):
            with pytest.raises(bluefog_cpp.InvalidArgument) as refused:
                call(full(1, shape), "x")
            name = call.__name__.removeprefix("neighbor_")
            assert str(refused.value) == (
                f"rank {rank}, window 'x', {name}: expected a tensor of the window's shape, "
                f"[3, 2], found {list(shape)}")
    assert bf.get_win_version("x") == dict.fromkeys(bf.in_neighbor_ranks(), 0)


@pytest.mark.parametrize("dtype", (torch.int64, torch.int32, torch.uint8, torch.bool))
def test_windows_of_integers_are_refused_by_name(rank, size, dtype):
    bf.set_topology(topology_util.RingGraph(size))
    with pytest.raises(bluefog_cpp.InvalidArgument) as refused:
        bf.win_create(torch.ones(3).to(dtype), "counts")
    assert f"rank {rank}, window 'counts', win_create: expected float16," in str(refused.value)
    assert f"found {str(dtype).removeprefix('torch.')};" in str(refused.value)
    bf.barrier()


def test_windows_of_different_shapes_are_refused(rank):
    needs(2)
    with pytest.raises(bluefog_cpp.MismatchError):
        bf.win_create(full(1, (2 + min(rank, 1),)), "x")
