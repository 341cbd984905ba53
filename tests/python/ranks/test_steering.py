"""Attributes that steer wrapped optimizers: what is set is read back, and slips are named."""

import numpy
import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from conftest import needs
from simulation import model_of, train

ANY = (bf.DistributedGradientAllreduceOptimizer, bf.DistributedAdaptThenCombineOptimizer,
       bf.DistributedAdaptWithCombineOptimizer, bf.DistributedPushSumOptimizer,
       bf.DistributedWinPutOptimizer, bf.DistributedPullGetOptimizer, bf.DecentralizedOptimizer)


def wrapped(wrap, **options):
    model = model_of(0)
    return wrap(torch.optim.SGD(model.parameters(), lr=0.1), model, **options)


def test_what_is_set_is_read_back(rank, size):
    needs(2)
    other = (rank + 1) % size
    optimizer = wrapped(bf.DistributedAdaptThenCombineOptimizer)
    assert optimizer.self_weight is None and optimizer.enable_topo_check is False
    for name, values in {
            "self_weight": (0.5, 1, numpy.float32(0.25), None),
            "src_weights": ({other: 0.5}, {numpy.int64(other): 1}, {}, None),
            "dst_weights": ([other], (other,), numpy.array([other]), {other: 2.0}, {other}, [],
                            None),
            "src_machine_weights": ({}, {0: 1.0}, None),
            "dst_machine_weights": ([], [0], {}, None), "enable_topo_check": (True, False, 1),
            "communication_type": tuple(bf.CommunicationType)}.items():
        for value in values:
            setattr(optimizer, name, value)
            assert getattr(optimizer, name) is value, name
    optimizer.my_own_note = 3
    assert optimizer.my_own_note == 3
    with pytest.raises(AttributeError, match="no_such"):
        _ = optimizer.no_such


@pytest.mark.parametrize("name, values", (
    ("self_weight", ("half", True, [0.5], float("nan"), {0: 1.0})),
    ("src_weights", ([0], 0.5, {"1": 1.0}, {0.5: 1.0}, {0: "1"}, {0: None}, {-1: 1.0}, {9: 1.0})),
    ("dst_weights", (0, "0", [0.5], ["0"], [9], [-1], {9: 1.0}, {0: float("inf")}, iter([0]))),
    ("src_machine_weights", ([0], {4: 1.0})),
    ("dst_machine_weights", ([4], 1)),
    ("enable_topo_check", (None, 2, "yes")),
    ("communication_type", ("allreduce", None))))
def test_values_that_cannot_be(name, values, rank):
    optimizer = wrapped(bf.DistributedAdaptWithCombineOptimizer)
    before = getattr(optimizer, name)
    for value in values:
        with pytest.raises(bluefog_cpp.InvalidArgument, match=(
                f"rank {rank}, SGD of DistributedAdaptWithCombineOptimizer, {name}: expected .*, "
                "found")):
            setattr(optimizer, name, value)
        assert getattr(optimizer, name) is before


def test_repeated_receivers(rank, size):
    needs(2)
    optimizer = wrapped(bf.DistributedWinPutOptimizer)
    with pytest.raises(ValueError, match="each rank once"):
        optimizer.dst_weights = 2 * [(rank + 1) % size]
    with pytest.raises(ValueError, match="force_barrier: expected True or False, found 2"):
        optimizer.force_barrier = 2


@pytest.mark.parametrize("wrap, known, wrong", (
    (bf.DistributedGradientAllreduceOptimizer, "there is none", ("self_weight", "dst_weights")),
    (bf.DistributedAdaptThenCombineOptimizer,
     "communication_type, dst_machine_weights, dst_weights",
     ("dst_weight", "self_weigth", "src_wieghts", "weights", "force_barrier",
      "enable_topo_checks")),
    (bf.DistributedPushSumOptimizer, "dst_weights, force_barrier, self_weight",
     ("src_weights", "communication_type", "send_neighbors")),
    (bf.DistributedWinPutOptimizer, "dst_weights, force_barrier", ("src_weights", "self_weight")),
    (bf.DistributedPullGetOptimizer, "force_barrier, src_weights",
     ("dst_weights", "enable_topo_check")),
    (bf.DecentralizedOptimizer, "there is none", ("self_weight", "src_weights"))))
def test_attributes_that_only_others_have(wrap, known, wrong, rank):
    optimizer = wrapped(wrap)
    for name in wrong:
        with pytest.raises(bluefog_cpp.InvalidArgument, match=(
                rf"rank {rank}, SGD of {wrap.__name__}: expected one of .*\({known}.*, found "
                rf"'{name}'")):
            setattr(optimizer, name, None)
        assert not hasattr(optimizer, name)


@pytest.mark.parametrize("wrap", ANY)
def test_choices_of_wrapping_are_read_and_not_set(wrap, rank):
    optimizer = wrapped(wrap, num_steps_per_communication=3)
    assert optimizer.num_steps_per_communication == 3
    with pytest.raises(ValueError,
                       match="num_steps_per_communication is chosen .*3.*wrap it again"):
        optimizer.num_steps_per_communication = 2
    assert optimizer.num_steps_per_communication == 3


def test_choices_of_a_decentralized_optimizer(rank):
    optimizer = wrapped(bf.DecentralizedOptimizer, algorithm="gossip_pga", schedule="exponential",
                        global_period_rounds=4, bucket_bytes=64)
    found = [getattr(optimizer, name) for name in (
        "algorithm", "graphs", "global_period_rounds", "momentum", "bucket_bytes")]
    assert found == ["gossip_pga", "exponential", 4, 0.9, 64]
    with pytest.raises(ValueError, match="algorithm is chosen"):
        optimizer.algorithm = "extra"


def test_shares_of_push_sum(rank, size):
    needs(2)
    others = bf.out_neighbor_ranks()
    model = model_of(0)
    optimizer = bf.DistributedPushSumOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model)
    for wrong in (others, dict.fromkeys(others, 1.5), dict.fromkeys(others, -0.25)):
        with pytest.raises(ValueError, match="dst_weights: expected"):
            optimizer.dst_weights = wrong
    share = 0.5 / len(others)
    optimizer.dst_weights, optimizer.self_weight = dict.fromkeys(others, share), 0.5
    train(model, optimizer, rank, 1)
    optimizer.self_weight = 0.25
    with pytest.raises((ValueError, bluefog_cpp.PeerFailure), match="self_weight: expected 0.5"):
        optimizer.step()
