"""States of wrapped optimizers in checkpoints of torch.distributed.checkpoint."""

import copy
import functools
import warnings

import pytest
import torch

import bluefog_cpp.torch as bf
from test_examples import common_folder
from test_optimizers import OPTIMIZERS, flat, model_of, train


def used_model(seed):
    """torch expects a state for each parameter, and makes none for those without gradients."""
    model = model_of(seed)
    del model.unused
    return model


@pytest.mark.parametrize("name", ("sgd_plain", "adam"))
@pytest.mark.parametrize("wrap", (bf.DistributedAdaptThenCombineOptimizer,
                                  bf.DistributedGradientAllreduceOptimizer))
def test_distributed_checkpoint(gloo, name, wrap, tmp_path, rank, size):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    # The one has no state, for which torch steps it each time it saves or loads.
    make = {**OPTIMIZERS, "sgd_plain": lambda p: torch.optim.SGD(p, lr=0.1)}[name]
    folder = common_folder(tmp_path) / "state"

    def state_of(model, optimizer):
        # Ranks hold different models: each keeps its own under its own name.
        of_model, of_optimizer = get_state_dict(model, optimizer)
        return {f"rank {rank}": {"model": of_model, "optimizer": of_optimizer}}

    model = used_model(0)
    optimizer = wrap(make(model.parameters()), model)
    train(model, optimizer, rank, 2)
    optimizer.zero_grad()
    with torch.no_grad():
        model[0].weight += rank  # an average that nobody asked for would show
    values = flat(model).clone()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about itself
        dcp.save(state_of(model, optimizer), checkpoint_id=str(folder))
        assert flat(model).equal(values)
        train(model, optimizer, rank, 2)
        again = used_model(5)
        resumed = wrap(make(again.parameters()), again)
        state = state_of(again, resumed)
        dcp.load(state, checkpoint_id=str(folder))
    own = state[f"rank {rank}"]
    set_state_dict(again, resumed, model_state_dict=own["model"], optim_state_dict=own["optimizer"])
    assert flat(again).equal(values)
    train(again, resumed, rank, 2)
    assert flat(again).equal(flat(model))
    bf.barrier()


@pytest.mark.parametrize("algorithm, steps, options", (
    ("adapt_then_combine", 5, {"schedule": "one-peer-exponential",
                               "num_steps_per_communication": 3}),
    ("exact_diffusion", 3, {}), ("diloco", 5, {"num_steps_per_communication": 2})))
def test_distributed_checkpoints_hold_what_goes_on(gloo, algorithm, steps, options, tmp_path, rank,
                                                   size):
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    folder = common_folder(tmp_path) / "state"

    def wrapped(seed):
        model = used_model(seed)
        return model, bf.DecentralizedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model, algorithm, **options)

    model, optimizer = wrapped(0)
    train(model, optimizer, rank, steps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about itself
        optimizer.zero_grad()
        dcp.save({f"rank {rank}": list(get_state_dict(model, optimizer))},
                 checkpoint_id=str(folder))
        again, resumed = wrapped(5)
        state = {f"rank {rank}": list(get_state_dict(again, resumed))}
        dcp.load(state, checkpoint_id=str(folder))
    of_model, of_optimizer = state[f"rank {rank}"]
    set_state_dict(again, resumed, model_state_dict=of_model, optim_state_dict=of_optimizer)
    assert resumed._distributed.core.step_count == steps
    assert (resumed._distributed.core.round_count
            == steps // options.get("num_steps_per_communication", 1))
    assert all("bluefog_cpp" not in group for group in resumed.param_groups)
    train(model, optimizer, rank, 4)
    train(again, resumed, rank, 4)
    assert flat(again).equal(flat(model))
    bf.barrier()


def test_plain_optimizers_read_states_of_wrapped_ones(rank):
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    model = used_model(0)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), model)
    train(model, optimizer, rank, 2)
    optimizer.zero_grad()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about itself
        of_model, of_optimizer = copy.deepcopy(get_state_dict(model, optimizer))
        again = used_model(5)
        plain = torch.optim.SGD(again.parameters(), lr=0.1, momentum=0.9)
        set_state_dict(again, plain, model_state_dict=of_model, optim_state_dict=of_optimizer)
    resumed = bf.DistributedAdaptThenCombineOptimizer(plain, again)
    assert all("bluefog_cpp" not in group for group in resumed.param_groups)
    train(model, optimizer, rank, 2)
    train(again, resumed, rank, 2)
    assert flat(again).equal(flat(model))


def test_a_checkpoint_finds_a_step_behind_any_number_of_wrappers(rank, size):
    from torch.distributed.checkpoint.state_dict import get_state_dict
    model = used_model(0)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model)
    train(model, optimizer, rank, 1)
    optimizer.zero_grad()
    with torch.no_grad():
        model[0].weight += rank  # an average that nobody asked for would show
    values = flat(model).clone()
    for _ in range(8):
        optimizer.step = functools.wraps(optimizer.step)(
            lambda *arguments, call=optimizer.step, **named: call(*arguments, **named))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, about itself
        get_state_dict(model, optimizer)
    assert flat(model).equal(values)

    def _init_optim_state():  # a program's own function of that name
        train(model, optimizer, rank, 1)

    def spread():
        weight = model[0].weight.detach()
        return bf.allreduce((weight - bf.allreduce(weight)).abs().max()).item()

    before = spread()
    _init_optim_state()
    assert size == 1 or spread() < before / 2
