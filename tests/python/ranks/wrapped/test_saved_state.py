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


def wrapped(algorithm, rank, size):
    options = dict(CARRYING.get(algorithm, {}))
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


@pytest.mark.parametrize("algorithm", CARRYING)
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


def test_there_is_no_key_where_nothing_is_carried(rank, size):
    model, optimizer = wrapped("adapt_then_combine", rank, size)
    train(model, optimizer, rank, 1)
    assert set(optimizer.state_dict()) == {"state", "param_groups"}


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


def test_what_is_carried_is_not_broadcast(rank, size):
    needs(2)
    model, optimizer = wrapped("choco", rank, size)
    train(model, optimizer, rank, 2)
    bf.broadcast_optimizer_state(optimizer, root_rank=0)
    train(model, optimizer, rank, 2)
