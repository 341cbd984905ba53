"""What one rank's script gets wrong is heard by the others in the same call, and ends nothing else."""

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from conftest import needs
from simulation import loss_of, model_of


@pytest.mark.parametrize("call", (
    lambda x: bf.allreduce(x), lambda x: bf.allreduce_(x), lambda x: bf.broadcast(x, 0),
    lambda x: bf.allgather(x), lambda x: bf.neighbor_allreduce(x),
    lambda x: bf.neighbor_allreduce_(x), lambda x: bf.neighbor_allgather(x)))
def test_something_that_is_no_tensor(call, rank):
    needs(2)
    with pytest.raises(TypeError if rank == 0 else bluefog_cpp.PeerFailure, match="expected a torch.Tensor"):
        call([1.0] if rank == 0 else torch.ones(1))
    assert bf.allreduce(torch.ones(1)).item() == 1


def test_a_tensor_that_no_window_takes(rank):
    needs(2)
    wrong = torch.ones(3).to_sparse()
    with pytest.raises(bluefog_cpp.Error if rank == 0 else bluefog_cpp.PeerFailure, match="dense"):
        bf.win_create(wrong if rank == 0 else torch.ones(3), "refused")
    assert bf.get_current_created_window_names() == []
    assert bf.win_create(torch.ones(3), "taken") and bf.win_free("taken")


@pytest.mark.parametrize("change", ("resize", "data"))
def test_a_window_whose_tensor_has_other_memory(change, rank):
    x = torch.ones(3)
    bf.win_create(x, "moved")
    if change == "resize":
        x.resize_(100_000)
    else:
        x.data = torch.zeros(3)
    for call in (lambda: bf.win_update("moved"), lambda: bf.win_put(x, "moved"),
                 lambda: bf.win_get("moved"), lambda: bf.win_update_then_collect("moved")):
        with pytest.raises(bluefog_cpp.StateError, match=f"rank {rank}, window 'moved'.*memory"):
            call()
    bf.barrier()
    assert bf.win_free("moved")


def test_a_negative_view_is_read_as_what_it_shows(rank, size):
    x = torch.tensor([1 + 2j]).conj().imag
    assert x.is_neg()
    assert bf.neighbor_allreduce(x).item() == -2 and bf.allreduce(x).item() == -2
    assert bf.allgather(x).tolist() == [-2] * size
    assert bf.neighbor_allreduce_(torch._neg_view(torch.ones(2))).tolist() == [-1, -1]


def test_a_hook_that_takes_the_place_of_the_average(rank):
    model = model_of(0)
    optimizer = bf.DistributedGradientAllreduceOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda _: None)
    loss_of(model, rank).backward()
    with pytest.raises(bluefog_cpp.StateError, match="parameter '.*': expected its post-accumulate"):
        optimizer.step()
    del optimizer
    bf.barrier()


def test_wrapping_again(rank):
    model = model_of(0)
    optimizer = None
    old = []
    for wrap in (bf.DistributedAdaptThenCombineOptimizer, bf.DistributedAdaptWithCombineOptimizer,
                 bf.DistributedGradientAllreduceOptimizer, bf.DecentralizedOptimizer):
        optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
        loss_of(model, rank).backward()
        optimizer.step()
        optimizer.zero_grad()
        old.append(optimizer)
    for ended in old[:-1]:
        with pytest.raises(bluefog_cpp.StateError, match="wrapped again"):
            ended.step()
    optimizer.step()
    bf.barrier()
