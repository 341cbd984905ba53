"""Wrapped optimizers against dense recursions over all ranks' parameters, in float64."""

import copy
import warnings

import numpy
import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from bluefog_cpp.util import env
from conftest import needs

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "sgd_foreach": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "sgd_fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adam_fused": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
    "adamw_amsgrad": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True, foreach=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=1.0),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
}


def model_of(seed):
    """Two layers with a batch norm, and a parameter that no loss reaches."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 2)).double()
    model.register_parameter("unused", torch.nn.Parameter(torch.ones(3, dtype=torch.float64)))
    return model


def loss_of(model, rank, step=0):
    generator = torch.Generator().manual_seed(100 * rank + step)
    data = torch.randn(8, 4, generator=generator, dtype=torch.float64)
    target = torch.randn(8, 2, generator=generator, dtype=torch.float64)
    return torch.nn.functional.mse_loss(model(data), target)


def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def assign(model, values):
    torch.nn.utils.vector_to_parameters(values, model.parameters())


class Simulation:
    """All ranks in this process, with plain optimizers."""

    def __init__(self, make, size, seed=0):
        self.models = [model_of(seed) for _ in range(size)]
        self.optimizers = [make(m.parameters()) for m in self.models]

    def gradients(self, step):
        for rank, (model, optimizer) in enumerate(zip(self.models, self.optimizers)):
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()

    def local_steps(self):
        for optimizer in self.optimizers:
            optimizer.step()

    def average(self, matrix):
        values = torch.stack([flat(m) for m in self.models])
        for model, mixed in zip(self.models, torch.as_tensor(matrix) @ values):
            assign(model, mixed)

    def average_gradients(self):
        for parameters in zip(*(m.parameters() for m in self.models)):
            if parameters[0].grad is not None:
                mean = sum(p.grad for p in parameters) / len(parameters)
                for p in parameters:
                    p.grad.copy_(mean)


def mixing(graph):
    """W of the graph, uniform weights."""
    size = graph.number_of_nodes()
    matrix = numpy.eye(size)
    for i, j in graph.edges:
        matrix[j, i] = 1.0
    return matrix / matrix.sum(axis=1, keepdims=True)


def train(model, optimizer, rank, steps):
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()


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
        for other in simulation.optimizers:
            other.zero_grad()
        for part in range(3):
            loss_of(model, rank, 3 * turn + part).backward()
            for r, other in enumerate(simulation.models):
                loss_of(other, r, 3 * turn + part).backward()
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
            for other in simulation.optimizers:
                other.zero_grad()
        loss_of(model, rank, step).backward()
        for r, other in enumerate(simulation.models):
            loss_of(other, r, step).backward()
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
    steps = topology_util.GetDynamicOnePeerSendRecvRanks(bf.load_topology(), rank) if size > 1 else None
    for step in range(4):
        if steps:
            send, receive = next(steps)
            optimizer.dst_weights = send
            optimizer.src_weights = {r: 0.5 for r in receive}
            optimizer.self_weight = 0.5
            optimizer.enable_topo_check = step % 2 == 0
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
        simulation.gradients(step)
        simulation.local_steps()
        if steps:
            distance = (send[0] - rank) % size
            simulation.average((numpy.eye(size) + numpy.roll(numpy.eye(size), distance, axis=0)) / 2)
    assert flat(model).allclose(flat(simulation.models[rank]), atol=1e-12)


def test_wrong_weights_are_an_error_on_every_rank_and_training_goes_on(rank, size):
    needs(2)
    model = model_of(0)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(OPTIMIZERS["sgd"](model.parameters()), model)
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


# torch looks at the plain object for calls of `step`.
@pytest.mark.filterwarnings("ignore:Detected call of")
def test_a_scheduler_of_the_plain_optimizer_goes_on(rank, size):
    model = model_of(0)
    plain = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(plain, step_size=1, gamma=0.5)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(plain, model)
    loss_of(model, rank).backward()
    optimizer.step()
    assert optimizer._distributed.core.step_count == 1
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.05


def test_closures(rank, size):
    model = model_of(0)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(OPTIMIZERS["sgd"](model.parameters()), model)

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
    combined = bf.DistributedAdaptWithCombineOptimizer(torch.optim.LBFGS(other.parameters()), other)
    with pytest.raises(bluefog_cpp.UnsupportedError):
        combined.step(closure)


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
    optimizer = bf.DistributedAdaptThenCombineOptimizer(OPTIMIZERS["sgd"](model.parameters()), model)
    other = copy.deepcopy(model.state_dict())
    if rank == 0:
        model.load_state_dict(other, assign=True)
    with pytest.raises((bluefog_cpp.StateError, bluefog_cpp.PeerFailure), match="parameter 'unused'"):
        optimizer.step()


def test_replaced_memory_is_taken_back(rank, size):
    model = model_of(0)
    optimizer = bf.DistributedAdaptThenCombineOptimizer(torch.optim.SGD(model.parameters(), lr=0.0), model)
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
            bf.DistributedAdaptThenCombineOptimizer(torch.optim.SGD(model.parameters(), lr=1), wrong)
    with pytest.raises(ValueError, match="num_steps"):
        bf.DistributedAdaptThenCombineOptimizer(torch.optim.SGD(model.parameters(), lr=1), model,
                                                num_steps_per_communication=0)
    with pytest.raises(ValueError):
        bf.DistributedAdaptThenCombineOptimizer(model, model)
    needs(2)
    torch.manual_seed(0)
    different = torch.nn.Linear(3, 2 + min(rank, 1))
    with pytest.raises((ValueError, bluefog_cpp.PeerFailure), match="weight"):
        bf.DistributedAdaptThenCombineOptimizer(torch.optim.SGD(different.parameters(), lr=1), different)


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


def test_the_wrapped_optimizer_goes_with_its_last_name(rank):
    import gc
    import weakref

    model = model_of(0)
    optimizer = bf.DistributedAdaptWithCombineOptimizer(torch.optim.SGD(model.parameters(), lr=1), model)
    loss_of(model, rank).backward()
    optimizer.step()
    gone = weakref.ref(optimizer)
    bf.barrier()
    del optimizer
    gc.collect()
    assert gone() is None
    bf.barrier()
