"""Beside torch's own means: process groups, samplers, compilers, profiler; and mpi4py."""

import os

import numpy
import pytest
import torch
import torch.distributed as dist

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp.torch.ddp_comm_hooks import allreduce_hook
from bluefog_cpp.torch.model_averaging import NeighborAverager
from conftest import needs
from test_optimizers import OPTIMIZERS, Simulation, flat, loss_of, mixing, model_of, train


def simulated(make, rank, size, steps):
    """A rank's model after adapt-then-combine."""
    simulation = Simulation(make, size)
    for step in range(steps):
        simulation.gradients(step)
        simulation.local_steps()
        simulation.average(mixing(bf.load_topology()))
    return flat(simulation.models[rank])


# ---- process groups and samplers


def test_a_process_group_of_torch_beside_ours(gloo, rank, size):
    assert dist.get_rank() == rank
    for turn in range(5):
        x = torch.full((1000,), float(rank + turn))
        handle = bf.allreduce_nonblocking(x, average=False)
        theirs = x.clone()
        dist.all_reduce(theirs)
        assert bf.synchronize(handle).equal(theirs)
    assert bf.allgather(torch.tensor([dist.get_rank()])).tolist() == list(range(size))


def test_distributed_sampler(gloo, rank, size):
    data = list(range(12))
    by_group = torch.utils.data.distributed.DistributedSampler(data, seed=3)
    by_ranks = torch.utils.data.distributed.DistributedSampler(data, bf.size(), bf.rank(), seed=3)
    for epoch in range(2):
        by_group.set_epoch(epoch)
        by_ranks.set_epoch(epoch)
        assert list(by_group) == list(by_ranks)
        assert sorted(bf.allgather(torch.tensor(list(by_ranks))).tolist()) == data


# ---- DistributedDataParallel and averagers


def test_ddp_hook_averages_gradients(gloo, rank, size):
    model = model_of(0)
    reference = Simulation(OPTIMIZERS["sgd"], size)
    ddp = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True,
                                                    bucket_cap_mb=0.0001)
    ddp.register_comm_hook(None, allreduce_hook)
    optimizer = OPTIMIZERS["sgd"](model.parameters())
    for step in range(3):
        optimizer.zero_grad()
        loss_of(ddp, rank, step).backward()
        optimizer.step()
        reference.gradients(step)
        reference.average_gradients()
        reference.local_steps()
    # A product and a sum in another order.
    assert flat(model)[:-3].allclose(flat(reference.models[rank])[:-3], atol=1e-12)


def test_ddp_hook_ends_with_the_error_of_a_peer(gloo, rank):
    needs(2)
    ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    ddp.register_comm_hook(None, allreduce_hook)
    loss = ddp(torch.ones(1, 2)).sum()
    if rank == 0:
        with pytest.raises(ValueError):
            bf.allreduce(torch.ones(1), name="something else")
    else:
        with pytest.raises(RuntimeError, match="something else|rank"):
            loss.backward()


@pytest.mark.parametrize("algorithm, options", (("gradient_allreduce", {}),
                                                ("adapt_then_combine", {"step_in_backward": True})))
def test_ddp_around_a_model_is_refused_where_gradients_are_used_in_the_pass(
        algorithm, options, gloo, rank):
    """Both would write into the same gradients, now one first and now the other."""
    def wrapped(model, net):
        return bf.DecentralizedOptimizer(torch.optim.SGD(net.parameters(), lr=0.1), model,
                                         algorithm, **options)

    text = (f"rank {rank}.*parameter '.*': expected nobody else to average its gradient, "
            "found torch's DistributedDataParallel.*ddp_comm_hooks.allreduce_hook")
    for is_given_whole in (False, True):
        net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
        ddp = torch.nn.parallel.DistributedDataParallel(net)
        with pytest.raises(bluefog_cpp.InvalidArgument, match=text):
            wrapped(ddp if is_given_whole else net, net)
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
    optimizer = wrapped(net, net)
    ddp = torch.nn.parallel.DistributedDataParallel(net)
    with pytest.raises(bluefog_cpp.StateError, match=text):
        ddp(torch.ones(1, 2)).sum().backward()
    del ddp
    optimizer.zero_grad()
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()


@pytest.mark.up_to_ranks(2)
@pytest.mark.parametrize("kind", (bf.CommunicationType.neighbor_allreduce,
                                  bf.CommunicationType.allreduce))
def test_averager_in_torchs_local_sgd(kind, rank, size):
    from torch.distributed.optim import PostLocalSGDOptimizer
    simulation = Simulation(OPTIMIZERS["sgd"], size)
    model = model_of(0)
    averager = NeighborAverager(period=2, warmup_steps=2, communication_type=kind)
    optimizer = PostLocalSGDOptimizer(OPTIMIZERS["sgd"](model.parameters()), averager)
    train(model, optimizer, rank, 6)
    everybody = torch.full((size, size), 1 / size, dtype=torch.float64)
    for step in range(6):
        simulation.gradients(step)
        simulation.local_steps()
        if step in (2, 4):
            simulation.average(everybody if kind is bf.CommunicationType.allreduce
                               else mixing(bf.load_topology()))
    assert flat(model).allclose(flat(simulation.models[rank]), atol=1e-12)


def test_averager_over_machines_and_of_parameters(rank, size):
    bf.set_machine_topology(bluefog_cpp.topology_util.RingGraph(1))
    model = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(model.weight, rank)
    kind = bf.CommunicationType.hierarchical_neighbor_allreduce
    NeighborAverager(communication_type=kind).average_parameters(model.parameters())
    assert model.weight.allclose(torch.full((2, 2), (size - 1) / 2))
    NeighborAverager(communication_type=bf.CommunicationType.empty).average_parameters(
        [{"params": list(model.parameters())}])
    for wrong in ({"period": 0}, {"warmup_steps": -1}, {"communication_type": "all"}):
        with pytest.raises(ValueError):
            NeighborAverager(**wrong)


# ---- torch.compile


@pytest.mark.up_to_ranks(2)
@pytest.mark.parametrize("when,backend", (
    ("wrapped before", "aot_eager"), ("wrapped after", "aot_eager"),
    # The compiler's own code, which takes half a minute to make, comes after what is tested here.
    pytest.param("wrapped before", "inductor", marks=(pytest.mark.up_to_ranks(1),
                                                      pytest.mark.long))))
def test_compiled_models(when, backend, monkeypatch, rank, size):
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    make = OPTIMIZERS["sgd"]
    model = model_of(0)
    plain = make(model.parameters())
    if when == "wrapped before":
        optimizer = bf.DistributedAdaptThenCombineOptimizer(plain, model)
        compiled = torch.compile(model, backend=backend)
    else:
        compiled = torch.compile(model, backend=backend)
        optimizer = bf.DistributedAdaptThenCombineOptimizer(plain, compiled)
    try:
        train(compiled, optimizer, rank, 3)
    except Exception as error:
        if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise
        pytest.skip(f"torch.compile: {type(error).__name__}: {str(error).splitlines()[0]}")
    # Kernels of the compiler round in their own way.
    assert flat(model).allclose(simulated(make, rank, size, 3), atol=1e-12)


# ---- profiler


def test_profiler_shows_named_ranges(rank):
    model = model_of(0)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                                        model)
    x = torch.ones(3)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        bf.neighbor_allreduce(x)
        bf.synchronize(bf.allreduce_nonblocking(x))
        train(model, optimizer, rank, 2)
        bf.win_create(x, "x")
        bf.win_put(x, "x")
        bf.win_update("x")
    bf.win_free("x")
    counts = {event.key: event.count for event in profile.key_averages()}
    for name, count in (("neighbor_allreduce", 1), ("allreduce_nonblocking", 1), ("synchronize", 1),
                        ("optimizer_step", 2), ("neighbor_win_put", 1), ("win_wait", 1),
                        ("win_update", 1)):
        assert counts.get(f"bluefog::{name}") == count, (name, counts)


# ---- mpi4py


def test_mpi4py_after_us(rank, size):
    if not os.environ.get("OMPI_COMM_WORLD_SIZE"):
        pytest.skip("not under an MPI launcher")
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"mpi4py: {error}")
    assert (MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size) == (rank, size)
    for _ in range(3):
        handle = bf.allreduce_nonblocking(torch.tensor([rank]), average=False)
        total = MPI.COMM_WORLD.allreduce(rank)
        assert bf.synchronize(handle).tolist() == [total] == [size * (size - 1) // 2]
    bf.shutdown()
    assert MPI.COMM_WORLD.allreduce(1) == size and not MPI.Is_finalized()
    bf.init()


# ---- training as torch's users do it


def test_autocast_scaler_clipping_and_scheduler_together(rank, size):
    model = model_of(0).float()
    plain = torch.optim.AdamW(model.parameters(), lr=0.01)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(plain, model)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    simulation = Simulation(lambda p: torch.optim.AdamW(p, lr=0.01), size)
    for other in simulation.models:
        other.float()
    schedules = [torch.optim.lr_scheduler.CosineAnnealingLR(o, T_max=3)
                 for o in simulation.optimizers]

    def loss(module, r, step):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return module(torch.full((2, 4), float(r + step))).square().mean()

    for step in range(3):
        optimizer.zero_grad()
        scaler.scale(loss(model, rank, step)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        for r, (other, its) in enumerate(zip(simulation.models, simulation.optimizers)):
            its.zero_grad()
            loss(other, r, step).backward()
            torch.nn.utils.clip_grad_norm_(other.parameters(), 0.1)
        simulation.local_steps()
        values = torch.stack([flat(m) for m in simulation.models]).double()
        mixed = torch.as_tensor(mixing(bf.load_topology())) @ values
        for other, row in zip(simulation.models, mixed.float()):
            torch.nn.utils.vector_to_parameters(row, other.parameters())
        for schedule in schedules:
            schedule.step()
    assert optimizer.param_groups[0]["lr"] == simulation.optimizers[0].param_groups[0]["lr"]
    # Scales are powers of two; sums of float32 in another order, through bfloat16 products.
    assert flat(model).allclose(flat(simulation.models[rank]), atol=2e-4)


def test_models_that_change_dtype_after_wrapping_are_refused_by_name(rank, size):
    model = model_of(0)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                                        model)
    if rank == 0:
        model.float()
    with pytest.raises((ValueError, bluefog_cpp.Error), match="parameter '"):
        optimizer.step()


def test_models_that_change_memory_format_after_wrapping_go_on(rank, size):
    model = torch.nn.Conv2d(3, 4, 3)
    torch.nn.init.constant_(model.weight, rank)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(torch.optim.SGD(model.parameters(), lr=0.0),
                                                        model)
    model.to(memory_format=torch.channels_last)
    optimizer.step()
    expected = float(mixing(bf.load_topology())[rank] @ numpy.arange(size))
    assert model.weight.allclose(torch.full_like(model.weight, expected))


def test_data_loader_workers_of_a_training_loop(rank):
    model = torch.nn.Linear(1, 1)
    bf.broadcast_parameters(model.state_dict(), 0)
    optimizer = bf.DistributedAdaptWithCombineOptimizer(torch.optim.SGD(model.parameters(), lr=0.1),
                                                        model)
    data = torch.arange(8.0).unsqueeze(1)
    for _ in range(2):  # workers are forked while an average is in flight
        for batch in torch.utils.data.DataLoader(data, batch_size=4, num_workers=1):
            optimizer.zero_grad()
            model(batch).sum().backward()
            optimizer.step()
    optimizer.finish()
    assert bf.broadcast(model.weight, 0).allclose(model.weight)
