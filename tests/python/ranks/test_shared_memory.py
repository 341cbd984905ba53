"""Tensors in memory that the ranks of a host share: sums in place have the bits of those apart."""

import gc
import os

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from conftest import needs

# Each dtype has more than 128 KiB, the least for which ranks ask each other where buffers are.
SHAPE = (3, 50_001)


def filled(rank, dtype, tensor):
    generator = torch.Generator().manual_seed(rank)
    return tensor.copy_(torch.rand(SHAPE, generator=generator).to(dtype))


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32, torch.float64))
def test_sums_in_place(dtype, rank, size):
    shared = bf.shared_zeros(SHAPE, dtype)
    assert shared.shape == SHAPE and shared.dtype == dtype
    assert not shared.any() and shared.is_contiguous()
    apart = torch.empty(SHAPE, dtype=dtype)
    bf.set_topology(topology_util.ExponentialGraph(size))
    for call in (bf.allreduce_, bf.neighbor_allreduce_):
        filled(rank, dtype, shared)
        filled(rank, dtype, apart)
        assert call(shared) is shared
        call(apart)
        assert shared.equal(apart)
    part = filled(rank, dtype, shared)[1:]
    whole = shared.clone()
    bf.allreduce_(part)
    assert part.equal(bf.allreduce(whole[1:])) and shared[0].equal(whole[0])


def test_a_tensor_outlives_its_calls(rank, size):
    needs(2)
    tensor = filled(rank, torch.float32, bf.shared_zeros(SHAPE))
    handle = bf.allreduce_nonblocking_(tensor)
    view = tensor[2]
    del tensor
    gc.collect()
    bf.wait(handle)
    expected = sum(filled(r, torch.float32, torch.empty(SHAPE))[2] for r in range(size)) / size
    assert view.allclose(expected)


def test_a_fork_takes_nothing_away(rank):
    """A worker of a DataLoader, say, in which the model goes out of scope."""
    tensor = filled(rank, torch.float32, bf.shared_zeros(SHAPE))
    model = torch.nn.Linear(500, 500)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                                        model)
    before = tensor.clone(), model.weight.detach().clone()
    child = os.fork()
    if child == 0:
        try:
            del tensor, model, optimizer
            gc.collect()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert tensor.equal(before[0]) and model.weight.equal(before[1])
    del optimizer


def test_sizes_and_dtypes(rank):
    assert bf.shared_zeros(5).shape == (5,) and bf.shared_zeros([]).shape == ()
    assert bf.shared_zeros((0, 3)).shape == (0, 3) and bf.shared_zeros(torch.Size([2])).shape == (2,
                                                                                                  )
    assert bf.shared_zeros(2, torch.int64).dtype == torch.int64
    for wrong in ("float32", 3, float):
        with pytest.raises(bluefog_cpp.ArgumentTypeError,
                           match=f"rank {rank}, shared_zeros: dtype: expected a torch.dtype or "
                                 "None, found"):
            bf.shared_zeros(2, wrong)


def parameters_after(steps, rank):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(300, 300), torch.nn.Linear(300, 1))
    optimizer = bf.DistributedGradientAllreduceOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model)
    x = torch.rand(8, 300, generator=torch.Generator().manual_seed(rank))
    for _ in range(steps):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    return [parameter.detach().clone() for parameter in model.parameters()]


def test_buckets_apart_train_alike(rank, monkeypatch):
    shared = parameters_after(3, rank)
    bf.shutdown()
    monkeypatch.setenv("BLUEFOG_SHARED_BUCKETS", "0")
    bf.init()
    apart = parameters_after(3, rank)
    bf.shutdown()
    monkeypatch.undo()
    bf.init()
    assert all(one.equal(other) for one, other in zip(shared, apart))
