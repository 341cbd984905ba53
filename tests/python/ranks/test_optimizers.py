"""Wrapped optimizers against dense recursions over all ranks' parameters, in float64."""

import numpy
import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from bluefog_cpp.util import env
from conftest import needs
from simulation import OPTIMIZERS, Simulation, flat, loss_of, mixing, model_of, train


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_adapt_then_combine(name, rank, size):
    make = OPTIMIZERS[name]
    simulation = Simulation(make, size)
    model = model_of(0)
    plain = make(model.parameters())
    optimizer = bf.DistributedAdaptThenCombineOptimizer(plain, model)
    assert isinstance(optimizer, type(plain)) and type(optimizer).__name__ == type(plain).__name__
    train(model, optimizer, rank, 4)
    for step in range(4):
        simulation.gradients(step)
        simulation.local_steps()
        simulation.average(mixing(bf.load_topology()))
    # Sums in another order than the dense product's.
    assert flat(model).allclose(flat(simulation.models[rank]), atol=1e-12)


def test_adapt_with_combine(rank, size):
    make = OPTIMIZERS["sgd"]
    simulation = Simulation(make, size)
    model = model_of(0)
    optimizer = bf.DistributedAdaptWithCombineOptimizer(make(model.parameters()), model)
    train(model, optimizer, rank, 4)
    optimizer.finish()
    for step in range(4):
        simulation.gradients(step)
        if step > 0:
            simulation.average(mixing(bf.load_topology()))
        simulation.local_steps()
    simulation.average(mixing(bf.load_topology()))
    assert flat(model).allclose(flat(simulation.models[rank]), atol=1e-12)


@pytest.mark.parametrize("name", ("sgd", "adam_fused"))
def test_gradient_allreduce(name, rank, size):
    make = OPTIMIZERS[name]
    simulation = Simulation(make, size)
    model = model_of(0)
    optimizer = bf.DistributedGradientAllreduceOptimizer(make(model.parameters()), model)
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        with optimizer.skip_synchronize():
            optimizer.step()
        simulation.gradients(step)
        simulation.average_gradients()
        torch.nn.utils.clip_grad_norm_(simulation.models[rank].parameters(), 0.5)
        for other in simulation.models:
            for p, q in zip(other.parameters(), simulation.models[rank].parameters()):
                p.grad = None if q.grad is None else q.grad.clone()
        simulation.local_steps()
    assert flat(model).allclose(flat(simulation.models[rank]), atol=1e-12)


@pytest.mark.parametrize("way", ("one step after all", "a step after each"))
def test_gradients_of_several_passes_add_up(way, rank, size):
    make = OPTIMIZERS["sgd"]
    simulation = Simulation(make, size)
    model = model_of(0)
    optimizer = bf.DistributedGradientAllreduceOptimizer(make(model.parameters()), model,
                                                         num_steps_per_communication=3)
    for turn in range(2):
        optimizer.zero_grad()
        simulation.zero_grad()
        for part in range(3):
            loss_of(model, rank, 3 * turn + part).backward()
            simulation.add_gradients(3 * turn + part)
            if way == "a step after each":
                optimizer.step()
        if way == "one step after all":
            optimizer.step()
        simulation.average_gradients()
        simulation.local_steps()
    assert flat(model).allclose(flat(simulation.models[rank]), atol=1e-12)


@pytest.mark.parametrize("way", ("one step after all", "a step after each"))
def test_every_third_step_averages(way, rank, size):
    make = OPTIMIZERS["sgd"]
    simulation = Simulation(make, size)
    model = model_of(0)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(make(model.parameters()), model,
                                                        num_steps_per_communication=3)
    for step in range(6):
        if way == "a step after each" or step % 3 == 0:
            optimizer.zero_grad()
            simulation.zero_grad()
        loss_of(model, rank, step).backward()
        simulation.add_gradients(step)
        if way == "a step after each" or step % 3 == 2:
            optimizer.step()
            simulation.local_steps()
        if step % 3 == 2:
            simulation.average(mixing(bf.load_topology()))
    assert flat(model).allclose(flat(simulation.models[rank]), atol=1e-12)


@pytest.mark.parametrize("wrap", (bf.DistributedAdaptThenCombineOptimizer,
                                  bf.DistributedAdaptWithCombineOptimizer))
def test_communication_types_change_while_training(wrap, rank, size):
    make = OPTIMIZERS["sgd"]
    bf.set_machine_topology(topology_util.RingGraph(1))
    simulation = Simulation(make, size)
    model = model_of(0)
    optimizer = wrap(make(model.parameters()), model, bf.CommunicationType.empty)
    is_atc = wrap is bf.DistributedAdaptThenCombineOptimizer
    everybody = numpy.full((size, size), 1 / size)
    types = bf.CommunicationType
    for step, kind in enumerate((types.empty, types.allreduce, types.empty,
                                 types.hierarchical_neighbor_allreduce)):
        optimizer.communication_type = kind
        assert optimizer.communication_type is kind
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
        simulation.gradients(step)
        matrix = numpy.eye(size) if kind is types.empty else everybody
        if is_atc:
            simulation.local_steps()
            simulation.average(matrix)
        else:
            simulation.average(matrix)
            simulation.local_steps()
    assert flat(model).allclose(flat(simulation.models[rank]), atol=1e-12)
    with pytest.raises(ValueError):
        optimizer.communication_type = "allreduce"


def test_dynamic_steps(rank, size):
    make = OPTIMIZERS["sgd"]
    simulation = Simulation(make, size)
    model = model_of(0)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(make(model.parameters()), model)
    steps = topology_util.GetDynamicOnePeerSendRecvRanks(bf.load_topology(),
                                                         rank) if size > 1 else None
    for step in range(4):
        if steps:
            send, receive = next(steps)
            optimizer.dst_weights = send
            optimizer.src_weights = dict.fromkeys(receive, 0.5)
            optimizer.self_weight = 0.5
            optimizer.enable_topo_check = step % 2 == 0
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
        simulation.gradients(step)
        simulation.local_steps()
        if steps:
            distance = (send[0] - rank) % size
            simulation.average((numpy.eye(size) + numpy.roll(numpy.eye(size), distance,
                                                             axis=0)) / 2)
    assert flat(model).allclose(flat(simulation.models[rank]), atol=1e-12)


def test_wrong_weights_are_an_error_on_every_rank_and_training_goes_on(rank, size):
    needs(2)
    model = model_of(0)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(OPTIMIZERS["sgd"](model.parameters()),
                                                        model)
    loss_of(model, rank).backward()
    optimizer.self_weight = 0.5 if rank == 0 else None
    with pytest.raises((ValueError, bluefog_cpp.PeerFailure), match="rank 0"):
        optimizer.step()
    optimizer.self_weight = None
    optimizer.step()
    with pytest.warns(DeprecationWarning):
        optimizer.send_neighbors = []
    assert optimizer.dst_weights == []


def test_hierarchical(rank, size):
    bf.shutdown()
    per_machine = 2 if size % 2 == 0 else 1
    machines = size // per_machine
    with env(BLUEFOG_NODES_PER_MACHINE=str(per_machine)):
        bf.init()
    bf.set_machine_topology(topology_util.RingGraph(machines))
    make = OPTIMIZERS["sgd"]
    simulation = Simulation(make, size)
    model = model_of(0)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(
        make(model.parameters()), model, bf.CommunicationType.hierarchical_neighbor_allreduce)
    train(model, optimizer, rank, 3)
    inner = numpy.kron(numpy.eye(machines), numpy.full((per_machine, per_machine), 1 / per_machine))
    outer = numpy.kron(mixing(topology_util.RingGraph(machines)), numpy.eye(per_machine))
    for step in range(3):
        simulation.gradients(step)
        simulation.local_steps()
        simulation.average(outer @ inner)
    assert flat(model).allclose(flat(simulation.models[rank]), atol=1e-12)


def test_push_sum_reaches_the_mean_on_a_star(rank, size):
    bf.set_topology(topology_util.StarGraph(size))
    model = model_of(rank)
    start = flat(model)
    optimizer = bf.DistributedPushSumOptimizer(torch.optim.SGD(model.parameters(), lr=0.0), model)
    for _ in range(150):
        optimizer.zero_grad()
        loss_of(model, rank).backward()
        optimizer.step()
    optimizer.finish()
    mean = bf.allreduce(start)
    # The second eigenvalue of a star of four is 3/4: below 1e-12 after 150 rounds.
    assert flat(model).allclose(mean, atol=1e-10)


@pytest.mark.parametrize("wrap", (bf.DistributedWinPutOptimizer, bf.DistributedPullGetOptimizer))
def test_window_optimizers_come_to_agree(wrap, rank, size):
    model = model_of(rank)
    optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.0), model)
    optimizer.force_barrier = True
    mean = bf.allreduce(flat(model))
    for _ in range(60):
        optimizer.zero_grad()
        loss_of(model, rank).backward()
        optimizer.step()
        bf.barrier()
    # The exponential graph is doubly stochastic, and every step a whole one: the mean is kept.
    assert flat(model).allclose(mean, atol=1e-9)
    assert bf.get_current_created_window_names()
    optimizer.unregister_window()
    assert not bf.get_current_created_window_names()
    optimizer.step()
