"""Wrapping moves parameters into buckets: what stands on their memory would go on with values that
nobody uses any more, and is refused by name."""

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from conftest import needs
from simulation import flat, loss_of, model_of

HEARD = (bluefog_cpp.StateError, bluefog_cpp.PeerFailure)
VIEWS = {"parameter": lambda p: p, "data": lambda p: p.data, "detached": lambda p: p.detach(),
         "part": lambda p: p.data[1:], "flat": lambda p: p.data.view(-1)}


def wrapped(model, wrap=bf.DistributedAdaptThenCombineOptimizer):
    return wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("wrap", (bf.DistributedAdaptThenCombineOptimizer,
                                  bf.DistributedWinPutOptimizer))
def test_windows_over_the_model(view, wrap, rank):
    model = model_of(0)
    assert bf.win_create(VIEWS[view](model[0].weight), "w")
    with pytest.raises(bluefog_cpp.StateError, match=(
            f"rank {rank}, {wrap.__name__}: .*found window 'w' over parameter '0.weight'; free")):
        wrapped(model, wrap)
    assert bf.win_update("w").allclose(VIEWS[view](model[0].weight))
    bf.win_free("w")
    optimizer = wrapped(model, wrap)
    assert bf.win_create(model[0].weight.data, "w")  # over the bucket
    bf.barrier()
    loss_of(model, rank).backward()
    optimizer.step()
    assert bf.win_update("w", self_weight=1, neighbor_weights={}).equal(model[0].weight)
    bf.barrier()


def test_windows_over_gradients(rank):
    model = model_of(0)
    loss_of(model, rank).backward()
    assert bf.win_create(model[0].weight.grad, "w")
    with pytest.raises(bluefog_cpp.StateError, match=(
            f"rank {rank}, .*found window 'w' over the gradient of parameter '0.weight'; free")):
        wrapped(model, bf.DistributedGradientAllreduceOptimizer)
    wrapped(model)  # who averages parameters leaves gradients where they are
    bf.win_free("w")


def test_windows_over_a_state_dict(rank):
    model = model_of(0)
    for name, tensor in model.state_dict().items():
        bf.win_create(tensor, name)
    with pytest.raises(bluefog_cpp.StateError, match="over parameter '0.bias'"):
        wrapped(model)
    bf.win_free()
    wrapped(model)


def test_one_rank_alone_has_a_window(rank):
    needs(2)
    model = model_of(0)
    bf.win_create(model[0].weight.data if rank == 0 else torch.ones(6, 4).double(), "w")
    with pytest.raises(bluefog_cpp.StateError if rank == 0 else HEARD, match="window 'w' over"):
        wrapped(model)
    assert bf.allreduce(torch.ones(1)).item() == 1


def test_windows_that_stay_where_they_are(rank):
    model, other = model_of(0), model_of(1)
    model.unused.requires_grad_(False)
    bf.win_create(other[0].weight.data, "other")
    bf.win_create(model.unused.data, "frozen")
    wrapped(model)
    assert bf.win_update("frozen").equal(model.unused)
    again = model_of(2)
    for _ in range(2):  # the windows of an optimizer go with it when its model is wrapped again
        optimizer = wrapped(again, bf.DistributedWinPutOptimizer)
    optimizer.unregister_window()


@pytest.mark.parametrize("start", (
    lambda x: bf.allreduce_nonblocking_(x), lambda x: bf.neighbor_allreduce_nonblocking_(x),
    lambda x: bf.broadcast_nonblocking_(x, 0)))
def test_calls_in_flight_that_write(start, rank):
    model = model_of(rank)
    handle = start(model[0].weight.data)
    with pytest.raises(bluefog_cpp.StateError, match=(
            "call in flight .* writes into parameter '0.weight'; wait for its handle first")):
        wrapped(model)
    bf.wait(handle)
    expected = flat(model).clone()
    reading = bf.allreduce_nonblocking(model[0].bias)  # reads alone
    wrapped(model)
    bf.wait(reading)
    assert flat(model).equal(expected)


def test_buffers_that_share_memory(rank):
    model = model_of(0)
    model[0].register_buffer("twin", model[0].weight.data[0])
    with pytest.raises(ValueError, match=(
            "buffer '0.twin' shares memory with parameter '0.weight'")):
        wrapped(model)
    model[0].twin = model[0].twin.clone()
    wrapped(model)
