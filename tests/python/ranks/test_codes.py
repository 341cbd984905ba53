"""CHOCO: codes in place of values, from Python."""

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from bluefog_cpp._extension import core
from conftest import needs
from simulation import flat, model_of, train


def choco(model, lr=0.0, **options):
    return bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=lr), model, "choco",
                                     **options)


@pytest.mark.parametrize("code", ["bfloat16", "float16", "int8", "int4"])
def test_ranks_come_to_agree_on_the_mean(code, rank, size):
    model = model_of(rank)
    mean = bf.allreduce(flat(model))
    train(model, choco(model, compression=code), rank, 60)
    assert (flat(model) - mean).abs().max() < 1e-5
    torch.testing.assert_close(bf.allreduce(flat(model)), mean, rtol=1e-6, atol=1e-6)


def test_rougher_codes_take_smaller_steps(rank, size):
    model = model_of(rank)
    mean = bf.allreduce(flat(model))
    start = (flat(model) - mean).norm()
    train(model, choco(model, compression="sign", numbers={"consensus_step_size": 0.1}), rank, 100)
    assert bf.allreduce((flat(model) - mean).norm()) <= 0.2 * bf.allreduce(start)


def test_int4_is_the_usual_code(rank, size):
    models = [model_of(rank), model_of(rank)]
    for model, options in zip(models, ({}, {"compression": "int4"}), strict=True):
        train(model, choco(model, lr=0.1, **options), rank, 4)
    assert flat(models[0]).equal(flat(models[1]))


def test_what_cannot_be_coded_is_refused(rank, size):
    model = model_of(0)
    with pytest.raises(bluefog_cpp.InvalidArgument,
                       match="compression: expected one of bfloat16, .* found 'int3'"):
        choco(model, compression="int3")
    with pytest.raises(bluefog_cpp.InvalidArgument,
                       match="compression: expected .*choco, .* found adapt_then_combine"):
        bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, "atc",
                                  compression="int8")
    with pytest.raises(bluefog_cpp.InvalidArgument, match="float32 or float64"):
        choco(model_of(0).to(torch.bfloat16))
    with pytest.raises(bluefog_cpp.InvalidArgument, match="at most 64 matrices"):
        choco(model, schedule=[topology_util.RingGraph(size)] * 65)
    assert core.compression_named("topk").name == "topk:64"


def test_codes_that_differ_between_ranks_are_refused(rank, size):
    needs(2)
    with pytest.raises(bluefog_cpp.InvalidArgument, match="compression int"):
        choco(model_of(0), compression="int4" if rank == 0 else "int8")


def wrapped(algorithm, model, lr=0.1, **options):
    return bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=lr), model, algorithm,
                                     **options)


@pytest.mark.parametrize("algorithm,options", (
    ("sparse_loco", {}), ("sparse_loco", {"compression": "int8"}),
    ("diloco", {"compression": "topk:600", "numbers": {"error_decay": 0.9}})))
def test_outer_steps_in_codes_leave_one_model(algorithm, options, rank, size):
    model = model_of(rank)
    optimizer = wrapped(algorithm, model, num_steps_per_communication=2, **options)
    train(model, optimizer, rank, 8)
    assert flat(model).equal(bf.broadcast(flat(model), 0))


@pytest.mark.parametrize("options", ({"compression": "topk:4096"}, {"numbers": {"low_rank": 6}}))
def test_gradients_in_codes_that_hold_all_are_the_means(options, rank, size):
    models = [model_of(0), model_of(0)]
    for model, chosen in zip(models, (options, {}), strict=True):
        train(model, wrapped("gradient_allreduce", model, **chosen), rank, 4)
    torch.testing.assert_close(flat(models[0]), flat(models[1]), rtol=1e-5, atol=1e-6)


def test_options_that_do_not_go_together_are_refused(rank, size):
    for algorithm, options, said in (
            ("gradient_allreduce", {"compression": "int8", "numbers": {"low_rank": 1}},
             "expected a compression or a low rank, found both"),
            ("gradient_allreduce", {"numbers": {"error_feedback": 0}}, "whose errors they are"),
            ("diloco", {"numbers": {"error_decay": 0.5}}, "whose it is, found none"),
            ("sparse_loco", {"compression": "none"}, "which sparse_loco always has"),
            ("power_gossip", {"numbers": {"low_rank": 0}}, "low_rank: expected from 1")):
        with pytest.raises(bluefog_cpp.InvalidArgument, match=said):
            wrapped(algorithm, model_of(0), **options)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("store", ("win_put", "win_accumulate"))
def test_windows_take_codes(dtype, store, rank, size):
    needs(2)
    bf.set_topology(topology_util.RingGraph(size))
    value = torch.linspace(-1, 1, 700, dtype=dtype).pow(3) * (rank + 1)
    window = torch.zeros_like(value)
    bf.win_create(window, "coded", zero_init=True)
    getattr(bf, store)(value, "coded", compression="bfloat16")
    bf.barrier()
    found = bf.win_update("coded", 0.0, dict.fromkeys(bf.in_neighbor_ranks(), 1.0))
    expected = sum(torch.linspace(-1, 1, 700, dtype=dtype).pow(3).mul(source + 1).bfloat16()
                   .to(dtype) for source in bf.in_neighbor_ranks())
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    bf.barrier()
    bf.win_free("coded")


def test_windows_refuse_codes_that_they_cannot_take(rank, size):
    needs(2)
    short = torch.ones(4, dtype=torch.bfloat16)
    bf.win_create(short, "short")
    with pytest.raises(bluefog_cpp.UnsupportedError,
                       match="compression int8: expected a window of float32 or float64"):
        bf.win_put(short, "short", compression="int8")
    bf.win_free("short")
