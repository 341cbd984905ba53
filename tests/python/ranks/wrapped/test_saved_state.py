"""State that algorithms carry from step to step goes with `state_dict`."""

import copy
import io

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from conftest import needs
from simulation import flat, model_of, train

CARRYING = {
    "extra": {}, "exact_diffusion": {}, "gradient_tracking": {}, "push_sum": {},
    "decent_lam": {"momentum": 0.5}, "choco": {}, "diloco": {"num_steps_per_communication": 2},
    "noloco": {}, "accelerated_gossip": {}, "slowmo": {"global_period_rounds": 2},
    "streaming_diloco": {"numbers": {"fragments": 2}},
    "gossip_diloco": {"compression": "int4"}, "sparse_loco": {}, "power_gossip": {},
    "gradient_allreduce": {"compression": "topk:600"}}
COUNTING = {
    "adapt_then_combine": {"schedule": "one-peer-exponential"},
    "adapt_with_combine": {"schedule": "one-peer-exponential", "num_steps_per_communication": 3},
    "gossip_pga": {"global_period_rounds": 3}, "local_sgd": {"num_steps_per_communication": 3},
    "ceca": {}, "none": {}, "dmsgd": {"num_steps_per_communication": 3, "momentum": 0.5}}
"""They go by counts: the graph of a round, every k-th step."""


def wrapped(algorithm, rank, size):
    options = dict({**CARRYING, **COUNTING}.get(algorithm, {}))
    if algorithm in ("gossip_diloco", "choco"):
        options["schedule"] = topology_util.RingGraph(size)
    model = model_of(rank)
    return model, bf.DecentralizedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.0), model, algorithm, **options)


def bytes_of(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


@pytest.mark.parametrize("algorithm", [*CARRYING, *COUNTING])
def test_a_run_that_resumes_has_the_same_bits(algorithm, rank, size):
    model, optimizer = wrapped(algorithm, rank, size)
    train(model, optimizer, rank, 4)
    optimizer.finish()
    saved = bytes_of({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    assert saved["optimizer"]["bluefog_cpp"]["algorithm"] == algorithm
    assert saved["optimizer"]["bluefog_cpp"]["step_count"] == 4
    train(model, optimizer, rank, 5)
    optimizer.finish()
    resumed, again = wrapped(algorithm, rank, size)
    train(resumed, again, rank, 3)  # whatever it has been through
    resumed.load_state_dict(saved["model"])
    again.load_state_dict(saved["optimizer"])
    train(resumed, again, rank, 5)
    again.finish()
    assert torch.equal(flat(resumed), flat(model))


def test_counts_are_there_where_nothing_else_is_carried(rank, size):
    model, optimizer = wrapped("adapt_with_combine", rank, size)
    train(model, optimizer, rank, 7)
    optimizer.finish()
    found = optimizer.state_dict()
    assert found["bluefog_cpp"] == {"algorithm": "adapt_with_combine", "step_count": 7,
                                    "round_count": 2, "tensors": {}}
    bf.shutdown()  # whoever wraps an optimizer that has ended begins anew
    bf.init()
    assert set(optimizer.state_dict()) == {"state", "param_groups"}
    optimizer.load_state_dict(found)


def counts_of(optimizer):
    return optimizer._distributed.core.step_count, optimizer._distributed.core.round_count


def test_states_without_counts_are_those_of_plain_optimizers(rank, size):
    """Checkpoints of before have it so; and another algorithm that carries nothing is none."""
    model, optimizer = wrapped("local_sgd", rank, size)
    train(model, optimizer, rank, 4)
    saved = copy.deepcopy(optimizer.state_dict())
    for name in ("local_sgd", "diloco"):
        other, loading = wrapped(name, rank, size)
        train(other, loading, rank, 2)
        before = counts_of(loading)
        saved["param_groups"][0]["lr"] = 0.03
        for state in ({key: saved[key] for key in ("state", "param_groups")},
                      {**saved, "bluefog_cpp": {**saved["bluefog_cpp"],
                                                "algorithm": "adapt_then_combine"}}):
            loading.load_state_dict(copy.deepcopy(state))
            assert counts_of(loading) == before and loading.param_groups[0]["lr"] == 0.03
        train(other, loading, rank, 2)
    _, loading = wrapped("local_sgd", rank, size)
    with pytest.raises(bluefog_cpp.InvalidArgument, match="step_count: expected 0 or more"):
        loading.load_state_dict({**saved, "bluefog_cpp": {**saved["bluefog_cpp"],
                                                          "step_count": -1}})
    bf.barrier()


def test_one_rank_loads_and_all_go_on_from_its_counts(rank, size):
    """The way of BlueFog's scripts: the root has the file, the others hear of it."""
    needs(2)
    model, optimizer = wrapped("local_sgd", 0, size)
    train(model, optimizer, rank, 4)
    saved = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    again, loading = wrapped("local_sgd", rank, size)
    if rank == 0:
        again.load_state_dict(saved["model"])
        loading.load_state_dict(saved["optimizer"])
    bf.broadcast_parameters(again.state_dict(), root_rank=0)
    bf.broadcast_optimizer_state(loading, root_rank=0)
    assert counts_of(loading) == (4, 1)
    train(again, loading, rank, 2)  # the second step is a round
    values = flat(again)
    torch.testing.assert_close(bf.allreduce(values), values, rtol=0, atol=1e-12)


def test_a_round_of_gradients_that_is_not_whole_begins_anew(rank, size):
    """The sums are not saved."""
    model = torch.nn.Linear(2, 1)
    bf.broadcast_parameters(model.state_dict(), 0)
    optimizer = bf.DistributedGradientAllreduceOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model, num_steps_per_communication=3)

    def step():
        model(torch.ones(1, 2) * (1 + rank)).sum().backward()
        optimizer.step()

    for _ in range(4):
        step()
    carried = optimizer.state_dict()["bluefog_cpp"]
    assert (carried["step_count"], carried["round_count"]) == (3, 1)
    for _ in range(2):
        step()
    assert counts_of(optimizer) == (6, 2)


def test_loading_its_own_state_leaves_what_is_in_flight(rank, size):
    expected = None
    for loads in (False, True):
        model, optimizer = wrapped("adapt_with_combine", rank, size)
        train(model, optimizer, rank, 3)
        if loads:
            optimizer.load_state_dict(optimizer.state_dict())
        optimizer.finish()
        expected = flat(model) if expected is None else expected
    assert flat(model).equal(expected)


def test_state_of_others_is_refused(rank, size):
    model, optimizer = wrapped("diloco", rank, size)
    train(model, optimizer, rank, 2)
    saved = copy.deepcopy(optimizer.state_dict())
    carried = saved["bluefog_cpp"]
    where = rf"rank {rank}, SGD of DecentralizedOptimizer, load_state_dict: .*expected "
    first = "outer start of bucket 0"
    for wrong, words in (
            ({**carried, "algorithm": "noloco"}, "the state of diloco, found that of noloco"),
            ({"algorithm": "diloco"}, r"what state_dict\(\) of a wrapped optimizer gave, found"),
            ({**carried, "tensors": {}}, f"'{first}', found none"),
            ({**carried, "tensors": []}, r"what state_dict\(\) of a wrapped optimizer gave, found"),
            ({**carried, "tensors": {first: 1}}, "tensors, found others among them"),
            ({**carried, "tensors": {**carried["tensors"], first: torch.ones(2)}},
             f"'{first}', float64.*, found float32.2.; load with the graph and the bucket_bytes")):
        before = optimizer.param_groups[0]["lr"]
        changed = {**saved, "bluefog_cpp": wrong}
        changed["param_groups"][0]["lr"] = 7.0
        with pytest.raises(bluefog_cpp.InvalidArgument, match=where + words):
            optimizer.load_state_dict(changed)
        assert optimizer.param_groups[0]["lr"] == before
    plain = torch.optim.SGD(model.parameters(), lr=1.0)
    del saved["bluefog_cpp"]
    plain.load_state_dict(saved)
    optimizer.load_state_dict(plain.state_dict())
    train(model, optimizer, rank, 2)


@pytest.mark.parametrize("algorithm", ("exact_diffusion", "gradient_tracking", "push_sum",
                                       "diloco", "choco"))
def test_what_one_rank_has_loaded_begins_anew_on_all(algorithm, rank, size):
    needs(2)
    model, optimizer = wrapped(algorithm, rank, size)
    train(model, optimizer, rank, 4)
    optimizer.finish()
    saved = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    ends = []
    for restarts in (False, True):
        again, loading = wrapped(algorithm, rank, size)
        if rank == 0:
            again.load_state_dict(saved["model"])
            loading.load_state_dict(saved["optimizer"])
        bf.broadcast_parameters(again.state_dict(), root_rank=0)
        bf.broadcast_optimizer_state(loading, root_rank=0)
        if restarts:
            loading.restart()
        train(again, loading, rank, 5)
        loading.finish()
        ends.append(flat(again))
    assert ends[0].equal(ends[1])


@pytest.mark.parametrize("algorithm", ("extra", "exact_diffusion", "gradient_tracking", "push_sum"))
def test_parts_of_other_ranks_are_refused(algorithm, rank, size):
    needs(2)
    model, optimizer = wrapped(algorithm, rank, size)
    train(model, optimizer, rank, 2)
    optimizer.finish()
    saved = copy.deepcopy(optimizer.state_dict())
    optimizer.load_state_dict(saved)
    saved["bluefog_cpp"]["rank"] = (rank + 1) % size
    with pytest.raises(bluefog_cpp.InvalidArgument,
                       match=f"what rank {rank} of {size} has saved, since what {algorithm} "
                             f"carries sums to .*, found that of rank {(rank + 1) % size} of"):
        optimizer.load_state_dict(saved)
    del saved["bluefog_cpp"]
    optimizer.load_state_dict(saved)
    optimizer.restart()
    train(model, optimizer, rank, 1)


def test_what_is_carried_is_not_broadcast(rank, size):
    needs(2)
    model, optimizer = wrapped("choco", rank, size)
    train(model, optimizer, rank, 2)
    bf.broadcast_optimizer_state(optimizer, root_rank=0)
    train(model, optimizer, rank, 2)
