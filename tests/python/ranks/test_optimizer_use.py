"""Uses that programs of torch make of an optimizer, with a wrapped one."""

import copy
import warnings

import numpy
import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from conftest import needs
from simulation import OPTIMIZERS, assign, flat, loss_of, mixing, model_of, train


def test_schedulers_and_groups(rank, size):
    model = model_of(0)
    plain = torch.optim.SGD([{"params": model[0].parameters(), "lr": 0.1},
                             {"params": [*model[2].parameters(), model.unused]}], lr=0.01)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(plain, model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in range(2):
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
            optimizer.step()
            scheduler.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.025, 0.0025]
    assert len(calls) == 2
    assert [len(group["params"]) for group in optimizer.param_groups] == [2, 3]
    with pytest.raises(RuntimeError, match="wrap"):
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})


def test_closures(rank, size):
    model = model_of(0)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(OPTIMIZERS["sgd"](model.parameters()),
                                                        model)

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model, rank)
        loss.backward()
        return loss

    first = optimizer.step(closure)
    assert first.item() == loss_of(model_of(0), rank).item()


def test_lbfgs(rank, size):
    model = model_of(0)
    model.unused.requires_grad_(False)
    lbfgs = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(lbfgs, model)
    evaluations = []

    def closure():
        evaluations.append(1)
        optimizer.zero_grad()
        loss = loss_of(model, 0)
        loss.backward()
        return loss

    before = loss_of(model, 0).item()
    assert optimizer.step(closure).item() == before
    assert len(evaluations) > 1 and loss_of(model, 0).item() < before
    with pytest.raises(ValueError, match="closure"):
        optimizer.step()
    other = model_of(0)
    other.unused.requires_grad_(False)
    for wrap in (bf.DistributedAdaptWithCombineOptimizer, bf.DistributedGradientAllreduceOptimizer):
        with pytest.raises(ValueError, match=f"rank {rank}, .*LBFGS"):
            wrap(torch.optim.LBFGS(other.parameters()), other)


@pytest.mark.parametrize("wrap", (bf.DistributedAdaptThenCombineOptimizer,
                                  bf.DistributedGradientAllreduceOptimizer))
def test_grad_scaler(wrap, rank, size):
    model = model_of(0).float()
    reference = copy.deepcopy(model)
    optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.5), model)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=100)
    before = flat(model)
    optimizer.zero_grad()
    loss = model(torch.ones(1, 4)).sum()
    scaler.scale(loss * (float("inf") if rank == 0 else 1.0)).backward()
    scaler.step(optimizer)
    scaler.update()
    if wrap is bf.DistributedGradientAllreduceOptimizer:
        assert flat(model).equal(before)
    assert flat(model).isfinite().all()
    assign(model, flat(reference))
    optimizer.zero_grad()
    scaler.scale(model(torch.ones(1, 4)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    plain = torch.optim.SGD(reference.parameters(), lr=0.5)
    reference(torch.ones(1, 4)).sum().backward()
    plain.step()
    assert flat(model).allclose(flat(reference), atol=1e-6)


def test_state_round_trip(rank, size):
    model, make = model_of(0), OPTIMIZERS["adam"]
    optimizer = bf.DistributedAdaptThenCombineOptimizer(make(model.parameters()), model)
    train(model, optimizer, rank, 2)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict()))
    train(model, optimizer, rank, 2)
    again = model_of(5)
    resumed = bf.DistributedAdaptThenCombineOptimizer(make(again.parameters()), again)
    again.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    train(again, resumed, rank, 2)
    assert flat(again).equal(flat(model))


def test_parameters_that_are_no_longer_the_models_are_named(rank, size):
    model = model_of(0)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(OPTIMIZERS["sgd"](model.parameters()),
                                                        model)
    other = copy.deepcopy(model.state_dict())
    if rank == 0:
        model.load_state_dict(other, assign=True)
    with pytest.raises((bluefog_cpp.StateError, bluefog_cpp.PeerFailure),
                       match="parameter 'unused'"):
        optimizer.step()


def test_replaced_memory_is_taken_back(rank, size):
    model = model_of(0)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(torch.optim.SGD(model.parameters(), lr=0.0),
                                                        model)
    for parameter in model.parameters():
        parameter.data = torch.full_like(parameter, float(rank))
    optimizer.step()
    expected = float(mixing(bf.load_topology())[rank] @ numpy.arange(size))
    assert flat(model).allclose(torch.full_like(flat(model), expected))


def test_several_models_tied_frozen_and_channels_last(rank, size):
    first = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    second = torch.nn.Module()
    second.a = torch.nn.Linear(4, 4)
    second.b = torch.nn.Linear(4, 4)
    second.b.weight = second.a.weight
    second.b.bias.requires_grad_(False)
    bf.broadcast_parameters([*first.named_parameters(), *second.named_parameters()], 0)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(
        torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1), [first, second])
    out = first(torch.randn(2, 3, 5, 5).to(memory_format=torch.channels_last)).mean((2, 3))
    second.b(second.a(out)).sum().backward()
    optimizer.step()
    assert first.weight.is_contiguous(memory_format=torch.channels_last)
    assert second.a.weight is second.b.weight


def test_wrong_models_are_named(rank, size):
    model = model_of(0)
    for wrong in ([], [model, 3]):
        with pytest.raises(ValueError):
            bf.DistributedAdaptThenCombineOptimizer(torch.optim.SGD(model.parameters(), lr=1),
                                                    wrong)
    with pytest.raises(ValueError, match="num_steps"):
        bf.DistributedAdaptThenCombineOptimizer(torch.optim.SGD(model.parameters(), lr=1), model,
                                                num_steps_per_communication=0)
    with pytest.raises(ValueError):
        bf.DistributedAdaptThenCombineOptimizer(model, model)
    needs(2)
    torch.manual_seed(0)
    different = torch.nn.Linear(3, 2 + min(rank, 1))
    with pytest.raises((ValueError, bluefog_cpp.PeerFailure), match="weight"):
        bf.DistributedAdaptThenCombineOptimizer(torch.optim.SGD(different.parameters(), lr=1),
                                                different)


def test_broadcast_of_parameters_and_state(rank, size):
    root = size - 1
    model = model_of(rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1 * (rank + 1))
    if rank == root:
        loss_of(model, rank).backward()
        optimizer.step()
    bf.broadcast_parameters(model.state_dict(), root_rank=root)
    bf.broadcast_optimizer_state(optimizer, root_rank=root)
    assert bf.allgather(flat(model).unsqueeze(0)).equal(flat(model).expand(size, -1))
    assert optimizer.param_groups[0]["lr"] == 0.1 * (root + 1)
    assert optimizer.param_groups[0]["betas"] == (0.9, 0.999)
    moments = optimizer.state[model[0].weight]["exp_avg"]
    assert bf.allreduce(moments).allclose(moments) and moments.abs().sum() > 0
    for parameter in model.parameters():
        parameter.data.fill_(rank)
    bf.allreduce_parameters(model.named_parameters())
    assert flat(model).allclose(torch.full_like(flat(model), (size - 1) / 2))
    bf.allreduce_parameters(list(model.parameters()))
    with pytest.raises(ValueError):
        bf.broadcast_parameters([1, 2], 0)
    if rank == root:
        optimizer.param_groups[0]["callback"] = print
    with pytest.raises((ValueError, bluefog_cpp.PeerFailure), match="builtin_function"):
        bf.broadcast_optimizer_state(optimizer, root)


def test_broadcast_state_has_the_roots_dtypes_and_numbers(rank, size):
    root = size - 1
    model = model_of(0).float()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    weight = model[0].weight
    if rank == root:
        optimizer.state[weight] = {
            "momentum_buffer": torch.full((6, 4), 1 / 3, dtype=torch.float64),
            "halves": [torch.tensor([0.5], dtype=torch.float16)],
            "counted": {"at": torch.tensor([2**40 + 1]), "seen": (torch.tensor([True]), None)}}
        optimizer.param_groups[0].update(lr=numpy.float32(0.25), rounds=numpy.int64(3),
                                         frozen=numpy.bool_(True))
    bf.broadcast_optimizer_state(optimizer, root)
    state, group = optimizer.state[weight], optimizer.param_groups[0]
    assert state["momentum_buffer"].dtype is torch.float64
    assert state["momentum_buffer"].eq(1 / 3).all()
    assert state["halves"][0].dtype is torch.float16 and state["halves"][0].item() == 0.5
    assert state["counted"]["at"].dtype is torch.int64 and state["counted"]["at"] == 2**40 + 1
    assert state["counted"]["seen"][0].dtype is torch.bool
    assert (group["lr"], group["rounds"], group["frozen"]) == (0.25, 3, True)


@pytest.mark.parametrize("wrong,said", (
    (numpy.ones(2), "found ndarray"), (1j, "found complex"), (numpy.complex64(1j), "found complex"),
    ({"inner": [1, print]}, r"\['inner'\]\[1\]: .*found builtin_function"),
    (torch.ones(1, dtype=torch.complex64), "found one of dtype complex64")))
def test_state_that_cannot_be_sent_is_named(wrong, said, rank):
    model = model_of(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if rank == 0:
        optimizer.param_groups[0]["note"] = wrong
    with pytest.raises(bluefog_cpp.Error,
                       match=rf"state\['param_groups'\]\[0\]\['note'\].*{said}"):
        bf.broadcast_optimizer_state(optimizer, 0)
    assert bf.allreduce(torch.ones(1)).item() == 1


def test_the_wrapped_optimizer_goes_with_its_last_name(rank):
    import gc
    import weakref

    model = model_of(0)
    optimizer = bf.DistributedAdaptWithCombineOptimizer(torch.optim.SGD(model.parameters(), lr=1),
                                                        model)
    loss_of(model, rank).backward()
    optimizer.step()
    gone = weakref.ref(optimizer)
    bf.barrier()
    del optimizer
    gc.collect()
    assert gone() is None
    bf.barrier()


@pytest.mark.parametrize("algorithm,graphs", (("adapt_then_combine", "one-peer-exponential"),
                                              ("adapt_with_combine", "ring"),
                                              ("adapt_with_combine", "one-peer-exponential")))
def test_a_step_that_one_rank_leaves_out(algorithm, graphs, rank, size):
    """It counts on all ranks, which go on with the same round of the schedule."""
    needs(2)
    model = model_of(0)
    optimizer = bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model,
                                          algorithm,
                                          schedule=graphs)
    said = {}
    for step in range(6):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        before = flat(model).clone()
        try:
            if step == 1 and rank == 0:
                optimizer.refuse_step("no data")
                assert flat(model).equal(before)
            else:
                optimizer.step()
        except bluefog_cpp.PeerFailure as error:
            said[step] = str(error)
        bf.barrier()
    # Adapt-with-combine waits for the average of a step in the next one.
    assert set(said) <= ({1} if algorithm == "adapt_then_combine" else {1, 2})
    assert all("rank 0, SGD of DecentralizedOptimizer, refuse_step: no data" in text
               for text in said.values())
    assert said or rank == 0 or size > 2
    assert optimizer._distributed.core.round_count == 6
    optimizer.finish()
    for wrong in (None, "", 3):
        with pytest.raises(ValueError,
                           match=f"rank {rank}, SGD.refuse_step: reason: expected a text, found"):
            optimizer.refuse_step(wrong)
    bf.barrier()
