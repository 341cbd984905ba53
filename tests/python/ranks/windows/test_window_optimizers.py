"""The windows that an optimizer makes: they end with it, on every rank at its own time."""

import gc
import time

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from conftest import needs
from simulation import loss_of, model_of, train

WRAPPERS = (bf.DistributedWinPutOptimizer, bf.DistributedPullGetOptimizer)


def wrapped(wrap, model, **options):
    return wrap(torch.optim.SGD(model.parameters(), lr=0.1), model, **options)


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_windows_go_with_their_optimizer(wrap, rank, size):
    model = model_of(0)
    optimizer = wrapped(wrap, model)
    train(model, optimizer, rank, 2)
    assert bf.get_current_created_window_names() == ["SGD 1 bucket 0"]
    if rank == 0:  # the others still use it
        del optimizer
        gc.collect()
        assert bf.get_current_created_window_names() == []
    else:
        train(model, optimizer, rank, 2)
        optimizer = None
    bf.barrier()
    assert bf.get_current_created_window_names() == []
    assert bf.set_topology(topology_util.StarGraph(size))
    optimizer = wrapped(wrap, model)
    assert bf._runtime.current().retired_windows == []
    assert bf.get_current_created_window_names() == ["SGD 2 bucket 0"]
    train(model, optimizer, rank, 1)


def test_windows_that_are_gone_on_one_rank_only(rank):
    needs(2)
    model = model_of(0)
    optimizer = wrapped(bf.DistributedWinPutOptimizer, model)
    kept = None if rank == 0 else optimizer
    other = model_of(1)
    optimizer = wrapped(bf.DistributedWinPutOptimizer, other)
    assert len(bf._runtime.current().retired_windows) == (1 if rank == 0 else 0)
    if kept is not None:
        train(model, kept, rank, 1)
    train(other, optimizer, rank, 1)
    bf.barrier()
    assert bf.win_free("SGD 1 bucket 0") and bf.win_free()
    assert bf._runtime.current().retired_windows == []
    assert bf.get_current_created_window_names() == []


@pytest.mark.parametrize("prefix", (None, "mine"))
def test_wrapping_the_same_model_again(prefix, rank):
    model = model_of(0)
    old = []
    for turn, wrap in enumerate(2 * WRAPPERS):
        optimizer = wrapped(wrap, model, window_prefix=prefix)
        train(model, optimizer, rank, 1)
        names = bf.get_current_created_window_names()
        assert names == [f"{prefix or f'SGD {turn + 1}'} bucket 0"]
        assert bf._runtime.current().retired_windows == []
        old.append(optimizer)
    for ended in old[:-1]:
        with pytest.raises(bluefog_cpp.StateError, match="wrapped again"):
            ended.step()
        ended.unregister_window()
    assert bf.get_current_created_window_names() == names
    plain = bf.DistributedAdaptThenCombineOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                                    model)
    assert bf.get_current_created_window_names() == []
    train(model, plain, rank, 1)


def test_optimizers_of_two_models_beside_each_other(rank):
    models = [model_of(0), model_of(1)]
    optimizers = [wrapped(bf.DistributedWinPutOptimizer, model) for model in models]
    for model, optimizer in zip(models, optimizers):
        train(model, optimizer, rank, 1)
    assert bf.get_current_created_window_names() == ["SGD 1 bucket 0", "SGD 2 bucket 0"]
    third = model_of(2)
    named = wrapped(bf.DistributedWinPutOptimizer, third, window_prefix="mine")
    fourth = model_of(3)
    with pytest.raises(ValueError,
                       match=f"rank {rank}, SGD of DistributedWinPutOptimizer.*window_prefix"):
        wrapped(bf.DistributedWinPutOptimizer, fourth, window_prefix="mine")
    train(third, named, rank, 1)
    bf.barrier()
    optimizers[0].unregister_window()
    train(models[0], optimizers[0], rank, 1)
    assert bf.get_current_created_window_names() == ["SGD 2 bucket 0", "mine bucket 0"]


def test_a_window_that_was_freed_is_missed_by_name(rank):
    model = model_of(0)
    optimizer = wrapped(bf.DistributedWinPutOptimizer, model)
    bf.win_free()
    loss_of(model, rank).backward()
    with pytest.raises(ValueError, match=f"rank {rank}.*'SGD 1 bucket 0'"):
        optimizer.step()


def test_memory_of_earlier_windows_is_given_back(rank):
    needs(2)
    model = torch.nn.Linear(2000, 500)

    def resident():
        with open("/proc/self/statm", encoding="ascii") as statm:
            return int(statm.read().split()[1]) * 4096

    for turn in range(12):
        optimizer = wrapped(bf.DistributedWinPutOptimizer, model)
        if turn == 3:
            before = resident()
    assert resident() - before < 6 * model.weight.nbytes  # of 8 times 3 for three ranks
    del optimizer


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_a_rank_that_ends_earlier_is_left_out(wrap, rank):
    needs(2)
    model = model_of(0)
    optimizer = wrapped(wrap, model)
    bf.barrier()
    if rank == 1:
        bf.shutdown()
        return
    asked = (bf.out_neighbor_ranks if wrap is bf.DistributedWinPutOptimizer
             else bf.in_neighbor_ranks)()
    for _ in range(30):  # until it has gone, and after
        train(model, optimizer, rank, 1)
        time.sleep(0.01)
    assert optimizer._finished >= {1} & set(asked)  # others may have ended their test by now
    if 1 in bf.out_neighbor_ranks():
        name = bf.get_current_created_window_names()[0]
        with pytest.raises(bluefog_cpp.WindowGoneError, match="has ended") as gone:
            bf.win_put(optimizer._own_windows[name].tensor, name, dst_weights={1: 1.0})
        assert gone.value.rank == 1
