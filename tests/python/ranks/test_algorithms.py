"""The core's algorithms around optimizers of torch, by name."""

import networkx as nx
import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from conftest import needs
from simulation import flat, loss_of, model_of, train

EXACT = ("extra", "exact_diffusion", "d2", "gradient_tracking")
APPROXIMATE = ("adapt_then_combine", "adapt_with_combine", "gossip_pga", "ceca", "choco",
               "power_gossip", "local_sgd", "dmsgd", "decent_lam", "quasi_global_momentum",
               "gradient_allreduce", "push_sum", "slowmo", "diloco", "streaming_diloco",
               "gossip_diloco", "sparse_loco", "noloco", "accelerated_gossip")
# How near they come depends on how far ranks run apart: ranks meet every few steps, or a busy
# machine would decide. The core's own tests take turns that are drawn.
WITHOUT_WAITING = ("win_put", "pull_get", "async_push_sum")


class LeastSquares:
    """½ |A_r x - b_r|² of each rank; the sum over ranks has one minimum."""

    def __init__(self, rank, size):
        data = [self._data(r) for r in range(size)]
        self.a, self.b = data[rank]
        self.solution = torch.linalg.lstsq(torch.cat([a for a, _ in data]),
                                           torch.cat([b for _, b in data])).solution
        self.model = torch.nn.Linear(3, 1, bias=False).double()
        torch.nn.init.zeros_(self.model.weight)

    @staticmethod
    def _data(rank):
        generator = torch.Generator().manual_seed(rank)
        a = torch.randn(6, 3, generator=generator, dtype=torch.float64)
        return a, a.sum(1) + rank + torch.randn(6, generator=generator, dtype=torch.float64)

    def minimize(self, optimizer, steps, meet_every=0):
        for step in range(steps):
            if meet_every and step % meet_every == 0:
                bf.barrier()
            optimizer.zero_grad()
            (0.5 * (self.model(self.a).squeeze(1) - self.b).square().sum()).backward()
            optimizer.step()
        optimizer.finish()
        return (flat(self.model) - self.solution).abs().max().item()


def distance(algorithm, rank, size, steps, lr=0.02, meet_every=0, **options):
    problem = LeastSquares(rank, size)
    optimizer = bf.DecentralizedOptimizer(torch.optim.SGD(problem.model.parameters(), lr=lr),
                                          problem.model, algorithm, **options)
    return problem.minimize(optimizer, steps, meet_every)


@pytest.mark.up_to_ranks(2)  # C++ trains on more
@pytest.mark.parametrize("algorithm", EXACT)
def test_algorithms_that_correct_their_bias_reach_the_minimum(algorithm, rank, size):
    assert distance(algorithm, rank, size, 250, lr=0.03) < 1e-5


@pytest.mark.up_to_ranks(2)  # C++ trains on more
@pytest.mark.parametrize("algorithm", APPROXIMATE)
def test_the_others_come_near(algorithm, rank, size):
    options = {"momentum": 0.5, "graphs": topology_util.FullyConnectedGraph(size)} \
        if algorithm in ("dmsgd", "decent_lam", "quasi_global_momentum") else \
        {"numbers": {"fragments": 1}} if algorithm == "streaming_diloco" else {}
    assert distance(algorithm, rank, size, 200, lr=0.01, **options) < 0.1


@pytest.mark.up_to_ranks(2)  # C++ trains on more
@pytest.mark.parametrize("algorithm", WITHOUT_WAITING)
def test_those_without_waiting_come_nearer(algorithm, rank, size):
    start = LeastSquares(rank, size).solution.abs().max().item()
    assert distance(algorithm, rank, size, 200, lr=0.01, meet_every=5) < start
    bf.barrier()


def test_the_topology_that_was_set_counts(rank, size):
    results = []
    for make in (lambda plain, model: bf.DistributedAdaptThenCombineOptimizer(plain, model),
                 lambda plain, model: bf.DecentralizedOptimizer(plain, model),
                 lambda plain, model: bf.DecentralizedOptimizer(
                     plain, model, schedule=[topology_util.RingGraph(size, connect_style=1)])):
        bf.set_topology(topology_util.RingGraph(size, connect_style=1))
        model = model_of(0)
        train(model, make(torch.optim.SGD(model.parameters(), lr=0.1), model), rank, 3)
        results.append(flat(model))
    assert results[0].equal(results[1]) and results[0].equal(results[2])


def test_graphs_by_turns(rank, size):
    needs(2)
    shift = [[(i, (i + k) % size) for i in range(size)] for k in (0, 1)]
    graphs = []
    for edges in shift:
        graph = nx.DiGraph()
        graph.add_nodes_from(range(size))
        graph.add_weighted_edges_from((i, j, 1.0) for i, j in edges)
        graphs.append(graph)
    model = model_of(rank)
    values = [flat(model_of(r)) for r in range(size)]
    optimizer = bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0), model,
                                          schedule=graphs)
    for step in range(4):
        loss_of(model, rank).backward()
        optimizer.step()
        assert flat(model).equal(values[(rank - (step + 1) // 2) % size]), step


def test_an_algorithm_with_a_schedule_of_its_own(rank, size):
    bf.set_topology(topology_util.RingGraph(size))  # not for ceca
    assert distance("ceca", rank, size, 200, lr=0.01) < 0.1
    assert distance("ceca", rank, size, 200, lr=0.01, schedule="ceca") < 0.1
    if size % 2 == 0:
        assert distance("ceca", rank, size, 200, lr=0.01, schedule="ceca-one-port") < 0.1
    with pytest.raises(bluefog_cpp.UnsupportedError, match="the algorithm ceca averages by it"):
        distance("atc", rank, size, 1, schedule="ceca")


def test_names_of_families(rank, size):
    near = distance("adapt_then_combine", rank, size, 200, lr=0.01,
                    schedule="one-peer-exponential")
    assert near < 0.1


@pytest.mark.parametrize("make", (torch.optim.Adam, torch.optim.SGD))
def test_rounds_that_begin_in_the_backward_pass(make, rank, size):
    def trained(step_in_backward):
        model = model_of(0)
        optimizer = bf.DecentralizedOptimizer(make(model.parameters(), lr=0.05), model,
                                              step_in_backward=step_in_backward, bucket_bytes=64)
        for step in range(4):
            before = flat(model)
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
            assert (flat(model) == before).all() != step_in_backward
            optimizer.step()
        return flat(model)
    assert (trained(True) == trained(False)).all()


def test_scaled_gradients_come_too_late_for_the_backward_pass(rank):
    model = model_of(0)
    optimizer = bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.05), model,
                                          step_in_backward=True)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(loss_of(model, rank)).backward()
    with pytest.raises(NotImplementedError, match="step_in_backward"):
        scaler.step(optimizer)


def test_scheduler_closure_and_restart(rank, size):
    problem = LeastSquares(rank, size)
    plain = torch.optim.LBFGS(problem.model.parameters(), lr=0.5, max_iter=5)
    optimizer = bf.DecentralizedOptimizer(plain, problem.model, "gossip_pga",
                                          global_period_rounds=1)
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)

    def closure():
        optimizer.zero_grad()
        loss = (problem.model(problem.a).squeeze(1) - problem.b).square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() > 0
    scheduler.step()
    optimizer.restart()
    assert isinstance(optimizer, torch.optim.LBFGS)


def test_what_cannot_converge_is_refused(size):
    needs(3)
    model = model_of(0)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="symmetric"):
        bf.DecentralizedOptimizer(sgd, model, "exact_diffusion",
                                  schedule=topology_util.RingGraph(size, connect_style=1))
    bf.barrier()


def test_wrong_arguments(size):
    model = model_of(0)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="expected one of adapt_then_combine, .*found 'exat'"):
        bf.DecentralizedOptimizer(sgd, model, "exat")
    with pytest.raises(ValueError, match="schedule: expected"):
        bf.DecentralizedOptimizer(sgd, model, schedule=[3])
    with pytest.warns(DeprecationWarning, match="'graphs' is now called 'schedule'") as warned, \
            pytest.raises(ValueError, match="graphs: expected"):
        bf.DecentralizedOptimizer(sgd, model, graphs=[3])
    assert warned[0].filename == __file__
    with pytest.raises(ValueError, match="none-such"):
        bf.DecentralizedOptimizer(sgd, model, schedule="none-such")
    with pytest.raises(ValueError, match=f"{size + 1}"):
        bf.DecentralizedOptimizer(sgd, model, schedule=topology_util.RingGraph(size + 1))
    with pytest.raises(ValueError, match="momentum: expected"):
        bf.DecentralizedOptimizer(sgd, model, "decent_lam", momentum=1.5)
    for plain in (torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
                  torch.optim.Adam(model.parameters())):
        with pytest.raises(ValueError, match="a momentum of its own"):
            bf.DecentralizedOptimizer(plain, model, "decent_lam")
    with pytest.raises(bluefog_cpp.InvalidArgument, match="global_period_rounds"):
        bf.DecentralizedOptimizer(sgd, model, "gossip_pga", global_period_rounds=0)
    bf.barrier()
