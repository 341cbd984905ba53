"""DDP programs that `decentralize` has made gossip: the values are those without DDP."""

import contextlib
import copy

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp.torch.ddp_comm_hooks import allreduce_hook
from conftest import needs
from simulation import OPTIMIZERS, Simulation, flat, loss_of, mixing, model_of, train

pytestmark = pytest.mark.usefixtures("gloo")
UNUSED = {"find_unused_parameters": True}  # of `model_of`, which has one


def sgd(model):
    return OPTIMIZERS["sgd"](model.parameters())


def decentralized(model, optimizer=None, ddp=UNUSED, **options):
    wrapped = DistributedDataParallel(model, **ddp)
    return wrapped, bf.decentralize(wrapped, optimizer or sgd(model), **options)


@pytest.mark.parametrize("algorithm, ddp", (
    ("adapt_then_combine", UNUSED), ("adapt_then_combine", {"static_graph": True}),
    ("adapt_with_combine", {**UNUSED, "gradient_as_bucket_view": True, "bucket_cap_mb": 0.0001}),
    ("exact_diffusion", UNUSED), ("push_sum", UNUSED), ("gradient_tracking", UNUSED),
    ("gradient_tracking", {**UNUSED, "gradient_as_bucket_view": True})), ids=str)
def test_as_without_ddp(algorithm, ddp, rank):
    graphs = bf.SymmetricExponentialGraph(bf.size())
    model, plain = model_of(0), model_of(0)
    wrapped, optimizer = decentralized(model, ddp=ddp, algorithm=algorithm, schedule=graphs)
    reference = bf.DecentralizedOptimizer(sgd(plain), plain, algorithm, schedule=graphs)
    for module, its in ((wrapped, optimizer), (plain, reference)):
        train(module, its, rank, 4)
        its.finish()
    assert optimizer.algorithm == algorithm and optimizer.graphs is graphs
    assert flat(model).equal(flat(plain))


def test_as_computed_by_hand(rank, size):
    """A step of DDP's own comes first: its hook may be registered then, too."""
    simulation = Simulation(OPTIMIZERS["sgd"], size)
    model = model_of(0)
    plain = sgd(model)
    wrapped = DistributedDataParallel(model, **UNUSED)
    train(wrapped, plain, rank, 1)
    optimizer = bf.decentralize(wrapped, plain)
    assert model.unused.grad is None
    for step in range(4):
        if step > 0:
            optimizer.zero_grad()
            loss_of(wrapped, rank, step).backward()
            optimizer.step()
        simulation.gradients(step)
        if step == 0:
            simulation.average_gradients()
        simulation.local_steps()
        if step > 0:
            simulation.average(mixing(bf.load_topology()))
    assert flat(model).allclose(flat(simulation.models[rank]), atol=1e-12)


def test_parameters_without_a_gradient_are_averaged(rank, size):
    model = model_of(0)
    wrapped = DistributedDataParallel(model, **UNUSED)
    with torch.no_grad():
        model.unused.fill_(rank)
    optimizer = bf.decentralize(wrapped, sgd(model), root_rank=None)
    train(wrapped, optimizer, rank, 1)
    expected = mixing(bf.load_topology())[rank] @ range(size)
    assert model.unused.tolist() == pytest.approx([expected] * 3)


def test_accumulation_scaler_and_scheduler(rank):
    model, plain = model_of(0).float(), model_of(0).float()
    wrapped, optimizer = decentralized(model, num_steps_per_communication=2)
    reference = bf.DistributedAdaptThenCombineOptimizer(sgd(plain), plain,
                                                        num_steps_per_communication=2)
    for module, its, pause in ((wrapped, optimizer, wrapped.no_sync),
                               (plain, reference, contextlib.nullcontext)):
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
        scheduler = torch.optim.lr_scheduler.StepLR(its, 1, 0.5)
        for step in range(3):
            its.zero_grad()
            for part, context in enumerate((pause, contextlib.nullcontext)):
                data = torch.full((2, 4), float(rank + step + part))
                with context(), torch.autocast("cpu", dtype=torch.bfloat16):
                    scaler.scale(module(data).square().mean()).backward()
            scaler.unscale_(its)
            torch.nn.utils.clip_grad_norm_(module.parameters(), 0.1)
            scaler.step(its)
            scaler.update()
            scheduler.step()
    assert flat(model).equal(flat(plain))


def test_ranks_start_from_a_root(rank, size):
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    net.register_buffer("mask", torch.zeros(2, dtype=torch.bool), persistent=False)
    wrapped = DistributedDataParallel(net)
    with torch.no_grad():
        for tensor in (*net.parameters(), *net.buffers()):
            tensor.fill_(rank)
    optimizer = bf.decentralize(wrapped, torch.optim.SGD(net.parameters(), lr=0.0),
                                root_rank=size - 1)
    for tensor in (*net.parameters(), *net.buffers()):
        assert tensor.equal(torch.full_like(tensor, size - 1))
    for _ in range(2):  # buffers are each rank's own from now on
        wrapped(torch.full((2, 2), float(rank))).sum().backward()
        optimizer.step()
    means = bf.allgather(net[1].running_mean[:1])
    assert len(set(means.tolist())) == size


def test_a_run_that_resumes(rank):
    model = model_of(0)
    wrapped, optimizer = decentralized(model)
    train(wrapped, optimizer, rank, 2)
    saved = copy.deepcopy({"model": wrapped.state_dict(), "optimizer": optimizer.state_dict()})
    train(wrapped, optimizer, rank, 2)
    again = model_of(5)
    plain = sgd(again)
    resumed = DistributedDataParallel(again, **UNUSED)
    resumed.load_state_dict(saved["model"])
    plain.load_state_dict(saved["optimizer"])
    train(resumed, bf.decentralize(resumed, plain, root_rank=None), rank, 2)
    assert flat(again).equal(flat(model))


# ---- wrong use


def net_and_ddp(**options):
    net = torch.nn.Linear(2, 2)
    return net, DistributedDataParallel(net, **options)


def hooked(register):
    net, ddp = net_and_ddp()
    register(ddp)
    return ddp, torch.optim.SGD(net.parameters(), lr=0.1)


def wrong_model(make):
    net, ddp = net_and_ddp()
    return make(net, ddp), torch.optim.SGD(net.parameters(), lr=0.1)


def wrong_optimizer(make):
    net, ddp = net_and_ddp()
    return ddp, make(net)


def ignoring():
    net = torch.nn.Linear(2, 2)
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, ["bias"])
    return DistributedDataParallel(net), torch.optim.SGD(net.parameters(), lr=0.1)


class FullyShardedDataParallel(torch.nn.Linear):
    """In place of torch's, which asks for more than a CPU."""


class AcceleratedOptimizer(torch.optim.SGD):
    """In place of Accelerate's."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.1)
        self.optimizer = torch.optim.SGD(self.param_groups[0]["params"], lr=0.1)


WRONG = {
    "no model": (lambda: (3, None), {}, bluefog_cpp.ArgumentTypeError,
                 "model: expected a torch.nn.parallel.DistributedDataParallel, found int"),
    "FSDP": (lambda: wrong_model(lambda *_: FullyShardedDataParallel(2, 2)), {},
             bluefog_cpp.InvalidArgument, "FullyShardedDataParallel, which leaves a part"),
    "compiled": (lambda: wrong_model(lambda _, ddp: torch.compile(ddp, backend="eager")), {},
                 bluefog_cpp.ArgumentTypeError, "around one; pass its part '_orig_mod'"),
    "a hook": (lambda: hooked(lambda ddp: ddp.register_comm_hook(None, allreduce_hook)), {},
               bluefog_cpp.InvalidArgument, "without a communication hook, found allreduce_hook"),
    "torch's hook": (
        lambda: hooked(lambda ddp: ddp.register_comm_hook(None, default_hooks.fp16_compress_hook)),
        {}, bluefog_cpp.InvalidArgument, "found fp16_compress_hook"),
    "a builtin hook": (
        lambda: hooked(lambda ddp: ddp._register_builtin_comm_hook(
            dist.BuiltinCommHookType.ALLREDUCE)),
        {}, bluefog_cpp.InvalidArgument, "without a communication hook, found .*ALLREDUCE"),
    "no optimizer": (lambda: wrong_optimizer(lambda net: None), {}, bluefog_cpp.ArgumentTypeError,
                     "optimizer: expected a torch.optim.Optimizer, found None"),
    "parameters of another model": (
        lambda: wrong_optimizer(lambda net: torch.optim.SGD(torch.nn.Linear(3, 4).parameters())),
        {}, bluefog_cpp.InvalidArgument,
        r"parameters of the model, found one of shape \[4, 3\] at place 0 of group 0"),
    "ignored parameters": (ignoring, {}, bluefog_cpp.InvalidArgument, "'bias', which it was told"),
    "parts of parameters": (
        lambda: wrong_optimizer(lambda net: ZeroRedundancyOptimizer(
            net.parameters(), torch.optim.SGD, lr=0.1)),
        {}, bluefog_cpp.InvalidArgument, "ZeroRedundancyOptimizer, which steps a part"),
    "Accelerate's": (
        lambda: wrong_optimizer(lambda net: AcceleratedOptimizer(net.parameters())), {},
        bluefog_cpp.InvalidArgument,
        "AcceleratedOptimizer around SGD; write optimizer.optimizer = decentralize"),
    "an algorithm of gradients": (
        net_and_ddp, {"algorithm": "gradient-allreduce"}, bluefog_cpp.InvalidArgument,
        "algorithm: expected one that averages parameters, found gradient_allreduce"),
    "an unknown algorithm": (net_and_ddp, {"algorithm": "gossip"}, bluefog_cpp.InvalidArgument,
                             "algorithm: expected one of adapt_then_combine"),
    "a root": (net_and_ddp, {"root_rank": -1}, bluefog_cpp.InvalidArgument, "root_rank: expected"),
    "graphs": (net_and_ddp, {"graphs": 5}, bluefog_cpp.InvalidArgument,
               "graphs: expected a name"),
}


@pytest.mark.up_to_ranks(2)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments(name, rank):
    make, options, error, text = WRONG[name]
    model, optimizer = make()
    if isinstance(optimizer, torch.nn.Module):  # of `net_and_ddp`
        model, optimizer = optimizer, torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(error, match=f"rank {rank}, decentralize.*{text}"):
        bf.decentralize(model, optimizer, **options)
    bf.barrier()
    assert not isinstance(model, DistributedDataParallel) or noop_hook not in dict(
        model._comm_hooks)


def test_a_plain_model(rank, size):
    """A single rank may have one: frameworks make no DDP then."""
    net = torch.nn.Linear(2, 2)
    plain = torch.optim.SGD(net.parameters(), lr=0.1)
    if size == 1:
        optimizer = bf.decentralize(net, plain)
        net(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        return
    with pytest.raises(bluefog_cpp.ArgumentTypeError, match=f"rank {rank}, decentralize: model: "
                       ".*found Linear; write model = Distributed.*DecentralizedOptimizer"):
        bf.decentralize(net, plain)


def test_one_rank_has_another_model(rank):
    needs(2)
    net, ddp = net_and_ddp()
    plain = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(bluefog_cpp.ArgumentTypeError if rank == 0 else bluefog_cpp.PeerFailure,
                       match="rank 0, decentralize: model: expected a torch.nn.parallel"):
        bf.decentralize(net if rank == 0 else ddp, plain)
    optimizer = bf.decentralize(ddp, plain)
    ddp(torch.ones(1, 2)).sum().backward()
    optimizer.step()


def test_a_process_group_of_other_ranks(rank, size):
    needs(2)
    groups = [dist.new_group([each]) for each in range(size)]
    net, ddp = net_and_ddp(process_group=groups[rank])
    with pytest.raises(bluefog_cpp.InvalidArgument, match=f"this is rank {rank} of {size}, found a "
                       "process group in which it is rank 0 of 1"):
        bf.decentralize(ddp, torch.optim.SGD(net.parameters(), lr=0.1))


def test_before_init(rank):
    net, ddp = net_and_ddp()
    plain = torch.optim.SGD(net.parameters(), lr=0.1)
    bf.barrier()
    bf.shutdown()
    with pytest.raises(bluefog_cpp.NotInitialized, match=r"decentralize: .*call init\(\) first; "
                       "after init_process_group it joins"):
        bf.decentralize(ddp, plain)
    bf.init()
    ddp.register_comm_hook(None, noop_hook)  # as frameworks do
    optimizer = bf.decentralize(ddp, plain)
    with pytest.raises(bluefog_cpp.InvalidArgument, match="optimizer: expected a plain optimizer"):
        bf.decentralize(ddp, optimizer)
