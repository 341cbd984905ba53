"""A wrapped optimizer as an object: copies, the schedulers of the plain one, compiled loops."""

import copy
import io
import pickle
import warnings

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from simulation import OPTIMIZERS, flat, loss_of, model_of, train

WRAPPERS = (bf.DistributedGradientAllreduceOptimizer, bf.DistributedAdaptThenCombineOptimizer,
            bf.DistributedAdaptWithCombineOptimizer, bf.DistributedPushSumOptimizer)


@pytest.mark.parametrize("wrap",
                         (*WRAPPERS, bf.DistributedWinPutOptimizer, bf.DecentralizedOptimizer))
def test_a_wrapped_optimizer_is_neither_copied_nor_pickled(wrap, rank):
    model = model_of(0)
    optimizer = wrap(torch.optim.Adam(model.parameters()), model)
    for make in (copy.copy, copy.deepcopy, pickle.dumps,
                 lambda it: torch.save(it, io.BytesIO()),
                 lambda it: copy.deepcopy({"optimizer": it})):
        message = rf"rank {rank}, Adam of {wrap.__name__}.*state_dict\(\)"
        with pytest.raises(bluefog_cpp.UncopyableError, match=message) as raised:
            make(optimizer)
        assert isinstance(raised.value, TypeError)
    train(model, optimizer, rank, 1)
    assert copy.deepcopy(optimizer.state_dict())["param_groups"]


@pytest.mark.parametrize("wrap", WRAPPERS)
def test_schedulers_of_the_plain_optimizer_go_on(wrap, rank):
    """The rates of a scheduler that was made before the optimizer was wrapped are those of its
    steps."""
    def trained(is_wrapped_first):
        model = model_of(0)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        if is_wrapped_first:
            optimizer = wrap(optimizer, model)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        if not is_wrapped_first:
            optimizer = wrap(optimizer, model)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
            optimizer.step()
            scheduler.step()
            assert optimizer.param_groups[0]["lr"] == 0.1 * 0.5 ** (step + 1)
        optimizer.finish()
        return flat(model)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert trained(False).equal(trained(True))


def test_a_scheduler_that_really_comes_first_is_warned_of(rank):
    model = model_of(0)
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(plain, step_size=1)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(plain, model)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        scheduler.step()
    del optimizer


def test_loaded_state_reaches_the_plain_optimizer_and_its_scheduler(rank):
    model = model_of(0)
    plain = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(plain, step_size=1, gamma=0.5)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(plain, model)
    train(model, optimizer, rank, 1)
    saved = copy.deepcopy(optimizer.state_dict())
    saved["param_groups"][0]["lr"] = 0.8
    for loading in (optimizer, plain):
        loading.load_state_dict(saved)
        assert plain.param_groups is optimizer.param_groups and plain.state is optimizer.state
        scheduler.step()
        assert optimizer.param_groups[0]["lr"] == 0.4
    plain.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
    with pytest.raises((bluefog_cpp.StateError, bluefog_cpp.PeerFailure),
                       match="expected the 1 groups"):
        optimizer.step()


@pytest.mark.up_to_ranks(2)
# A warning of the compiler about code that it cannot read is an error.
@pytest.mark.filterwarnings("error:.*bluefog_cpp")
@pytest.mark.parametrize("wrap", (
    bf.DistributedAdaptThenCombineOptimizer, bf.DistributedWinPutOptimizer,
    *(pytest.param(wrap, marks=pytest.mark.long) for wrap in WRAPPERS
      if wrap is not bf.DistributedAdaptThenCombineOptimizer)))
def test_a_compiled_training_step(wrap, rank):
    """Graphs break at our calls; what is computed is what an uncompiled step computes."""
    data = torch.randn(3, 8, 4, generator=torch.Generator().manual_seed(rank), dtype=torch.float64)

    def trained(is_compiled):
        torch._dynamo.reset()
        model = model_of(0)
        optimizer = wrap(OPTIMIZERS["adam"](model.parameters()), model)
        if wrap is bf.DistributedWinPutOptimizer:
            optimizer.force_barrier = True
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)

        def step(batch):
            optimizer.zero_grad()
            loss = model(batch).square().mean()
            loss.backward()
            optimizer.step()
            mean = bf.allreduce(loss.detach())
            return mean + bf.neighbor_allreduce(torch.ones(2, dtype=mean.dtype)).sum()

        run = torch.compile(step, backend="eager") if is_compiled else step
        losses = []
        for batch in data:
            losses.append(run(batch))
            scheduler.step()
            bf.barrier()
        optimizer.finish()
        return flat(model), torch.stack(losses)

    for found, expected in zip(trained(True), trained(False)):
        assert found.allclose(expected, rtol=1e-12, atol=1e-12)
