"""Algorithms of classes of Python's: the arithmetic, what they carry, what they are refused for."""

import copy
import pathlib
import re

import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import algorithms, topology_util
from bluefog_cpp._extension import core
from conftest import needs
from simulation import Simulation, flat, loss_of, mixing, model_of, train

PAGE = pathlib.Path(__file__).resolve().parents[4] / "docs" / "your_own_in_python.md"
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def run_snippet(place):
    exec(compile(SNIPPETS[place], f"{PAGE}, snippet {place}", "exec"), {})


def wrapped(model, name, lr=0.05, **options):
    return bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=lr, momentum=0.5),
                                     model, name, bucket_bytes=64, **options)


def trained(rank, name, dtype=torch.float64, steps=7, **options):
    model = model_of(rank).to(dtype)
    optimizer = wrapped(model, name, **options)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model.double(), rank, step).backward() if dtype == torch.float64 else \
            model(torch.full((3, 4), 0.1 * (rank + step), dtype=dtype)).square().sum().backward()
        optimizer.step()
    return flat(model)


@bf.register_algorithm
class Partial(bf.Algorithm):
    """Keeps a share of what a rank has stepped to."""

    name = "test_partial"
    aliases = ("test_part",)
    mixing = bf.Mixing("rows")
    options = {"rho": bf.Option(0.75, "ρ", least=0, below=1), "twice": bf.Option(False, "again"),
               "whole": bf.Option(2, "n", least=1)}

    def step(self, round, buckets):
        assert isinstance(self.options["twice"], bool) and isinstance(self.options["whole"], int)
        for bucket in buckets:
            self.local_step(bucket)
            stepped = bucket.values.clone()
            self.average(bucket)
            bucket.values.lerp_(stepped, 1 - self.options["rho"])


def test_example_of_the_page_has_the_bits_of_the_built_in_one(rank, size):
    run_snippet(0)
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        for options in ({}, {"schedule": topology_util.RingGraph(size)}):
            own, built_in = (trained(rank, name, dtype, **options)
                             for name in ("my_diffusion", "exact_diffusion"))
            assert own.equal(built_in), dtype


def test_outer_steps_of_the_page_are_those_of_diloco(rank):
    run_snippet(2)
    numbers = {"outer_learning_rate": 0.5, "outer_momentum": 0.8}
    built_in = trained(rank, "diloco", steps=9, num_steps_per_communication=3, numbers=numbers)
    own = trained(rank, "my_diloco", steps=9, num_steps_per_communication=3,
                  numbers={"rate": 0.5, "beta": 0.8})
    torch.testing.assert_close(own, built_in, rtol=0, atol=1e-12)


def test_averaged_moments_of_the_page(rank, size):
    run_snippet(1)
    graph = topology_util.ExponentialGraph(size)
    matrix = torch.as_tensor(mixing(graph))

    def make(parameters):
        return torch.optim.AdamW(parameters, lr=0.02, weight_decay=0.3)

    simulation = Simulation(make, size)
    model = model_of(0)
    optimizer = bf.DecentralizedOptimizer(make(model.parameters()), model, "averaged_moments",
                                          schedule=graph, bucket_bytes=64)
    for step in range(5):
        simulation.gradients(step)
        simulation.local_steps()
        simulation.average(matrix)
        for name in ("exp_avg", "exp_avg_sq"):
            for same in zip(*(model_.parameters() for model_ in simulation.models)):
                states = [plain.state[p] for plain, p in zip(simulation.optimizers, same)]
                if name in states[0]:
                    values = torch.stack([state[name].reshape(-1) for state in states])
                    for state, mixed in zip(states, matrix @ values):
                        state[name].copy_(mixed.view_as(state[name]))
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
        torch.testing.assert_close(flat(model), flat(simulation.models[rank]), rtol=0, atol=1e-12)


@pytest.mark.parametrize("numbers", ({}, {"rho": 0.5}))
def test_an_equation(numbers, rank, size):
    graph = topology_util.RingGraph(size, connect_style=1) if size > 1 else \
        topology_util.FullyConnectedGraph(1)
    matrix = torch.as_tensor(mixing(graph))
    models = [model_of(r) for r in range(size)]
    plains = [torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.5) for model in models]
    share = numbers.get("rho", 0.75)
    for step in range(4):
        for r, (model, plain) in enumerate(zip(models, plains)):
            plain.zero_grad()
            loss_of(model, r, step).backward()
            plain.step()
        stepped = torch.stack([flat(model) for model in models])
        for model, values in zip(models, (1 - share) * stepped + share * matrix @ stepped):
            torch.nn.utils.vector_to_parameters(values, model.parameters())
    found = trained(rank, "test-part", steps=4, schedule=graph, numbers=numbers)
    torch.testing.assert_close(found, flat(models[rank]), rtol=0, atol=1e-12)


@bf.register_algorithm
class Everything(bf.Algorithm):
    """Looks at all that a round offers."""

    name = "test_everything"
    averages_with_neighbors = True
    scalars = {"rounds": 0.5}

    def step(self, round, buckets):
        self.scalars["rounds"] += 1
        for bucket in buckets:
            gradient, before = bucket.gradient(), bucket.values.clone()
            for name, part in bucket.parts(gradient).items():
                parameter = bucket.parameters[name]
                expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                assert part.equal(expected) and part.shape == parameter.shape
                assert bucket.parts(bucket.values)[name].data_ptr() == parameter.data_ptr()
            self.local_step(bucket)
            heard = self.gather(bucket.values)
            expected = round.self_weight * bucket.values + sum(
                (weight * heard[other] for other, weight in round.src_weights.items()),
                torch.zeros_like(before))
            assert sorted(heard) == sorted(round.src_weights)
            number = torch.tensor([float(self.rank)], dtype=torch.float64)
            assert self.average(number, over="all") is number
            assert number.item() == (self.size - 1) / 2
            self.average(bucket.values)
            torch.testing.assert_close(bucket.values, expected, rtol=0, atol=1e-12)

    def calls_due(self):
        return 3 * len(self.buckets)


def test_all_that_a_round_offers(rank, size):
    model = model_of(rank)
    optimizer = wrapped(model, "test_everything")
    train(model, optimizer, rank, 3)
    carried = dict(optimizer._distributed.core.carried())
    assert carried["rounds"].item() == 3.5
    optimizer.restart()
    assert carried["rounds"].item() == 0.5


def test_what_it_carries_is_in_the_state_dict(rank):
    run_snippet(0)
    run_snippet(2)
    for name, options in (("my_diffusion", {}), ("my_diloco", {"num_steps_per_communication": 3})):
        model = model_of(rank)
        optimizer = wrapped(model, name, **options)
        train(model, optimizer, rank, 4)
        kept, values = copy.deepcopy(optimizer.state_dict()), flat(model)
        train(model, optimizer, rank, 5)
        expected = flat(model)
        other = model_of(99)
        torch.nn.utils.vector_to_parameters(values, other.parameters())
        resumed = wrapped(other, name, **options)
        resumed.load_state_dict(kept)
        train(other, resumed, rank, 5)
        assert flat(other).equal(expected)
        with pytest.raises(bluefog_cpp.InvalidArgument, match=f"of d2, found that of {name}"):
            wrapped(model_of(0), "d2").load_state_dict(kept)


def test_restart_begins_anew(rank):
    run_snippet(0)
    model = model_of(rank)
    optimizer = wrapped(model, "my_diffusion")
    train(model, optimizer, rank, 4)
    optimizer.restart()
    assert all(not tensor.any() for _, tensor in optimizer._distributed.core.carried())


def test_wrong_graphs_are_refused_by_name_on_every_rank(size):
    needs(3)
    run_snippet(0)
    for name, graph, words in (
            ("my_diffusion", topology_util.RingGraph(size, connect_style=1),
             "my_diffusion expects a symmetric W"),
            ("my_diffusion", [topology_util.RingGraph(size), topology_util.StarGraph(size)],
             "my_diffusion expects the same W in every round"),
            ("test_ring", topology_util.StarGraph(size), "test_ring, round 0: no ring")):
        with pytest.raises(bluefog_cpp.InvalidArgument, match=words):
            wrapped(model_of(0), name, schedule=graph)
        bf.barrier()
    wrapped(model_of(0), "test_ring", schedule=topology_util.RingGraph(size))


@bf.register_algorithm
class OnRings(Partial):
    """With a check of its own."""

    name = "test_ring"
    aliases = ()
    mixing = bf.Mixing("any")

    @staticmethod
    def why_unfit(graph):
        return "" if bf.IsRegularGraph(graph) else "no ring"


def test_wrong_options_are_refused(rank):
    for numbers, words in (({"rho": 1.0}, "rho: expected from 0 to below 1, found 1"),
                           ({"whole": 1.5}, "whole: expected a whole number, found 1.5"),
                           ({"sigma": 1.0}, "test_partial, rho, twice, whole, found 'sigma'")):
        with pytest.raises(bluefog_cpp.InvalidArgument, match=words):
            wrapped(model_of(0), "test_partial", numbers=numbers)


def test_a_class_that_is_registered_again_takes_the_place_of_the_former_one(rank):
    def define(factor, **attributes):
        class Scaled(bf.Algorithm):
            name = "test_scaled"

            def step(self, round, buckets):
                for bucket in buckets:
                    self.local_step(bucket)
                    self.average(bucket)
                    bucket.values.mul_(factor)
        for name, value in attributes.items():
            setattr(Scaled, name, value)
        return bf.register_algorithm(Scaled)

    values = []
    for factor in (1.0, 2.0):
        define(factor, aliases=(f"test_scaled_by_{int(factor)}",))
        values.append(trained(rank, "test_scaled", steps=1, lr=0.0))
    assert values[1].equal(2 * values[0])
    names = [row.name for row in core.algorithms()]
    assert names.count("test_scaled") == 1
    assert core.algorithm_named("test_scaled").aliases == ["test_scaled_by_2"]
    with pytest.raises(bluefog_cpp.InvalidArgument, match="found 'atc', which adapt_then_combine"):
        define(3.0, aliases=("atc",))
    assert core.algorithm_named("test_scaled").aliases == ["test_scaled_by_2"]

    with pytest.raises(bluefog_cpp.InvalidArgument, match="found 'test_scaled', which"):
        @bf.register_algorithm
        class Other(Partial):
            name = "test_scaled"


def class_with(**attributes):
    return type("Wrong", (Partial,), {"name": "test_wrong", "aliases": (), **attributes})


@pytest.mark.parametrize("given, words", (
    (3, "algorithm: expected a subclass of bf.Algorithm, found int"),
    (Partial("x") if False else object(), "expected a subclass of bf.Algorithm, found object"),
    (type("Lazy", (bf.Algorithm,), {"name": "lazy"}), "Lazy: expected a method 'step', found none"),
    (class_with(name="Wrong"), "name: expected lower-case letters"),
    (class_with(name=3), "name: expected a text or None, found 3"),
    (class_with(name="atc"), "found 'atc', which adapt_then_combine has"),
    (class_with(aliases="ab"), r"aliases: expected names, as in \('one',\), found 'ab'"),
    (class_with(state="ab"), "state: expected names"),
    (class_with(scalars=[1]), "scalars: expected a dict by name"),
    (class_with(mixing="rows"), "mixing: expected a bf.Mixing, found str"),
    (class_with(options={"momentum": bf.Option(0.5, "β")}),
     "expected a name that no argument of DecentralizedOptimizer has, found 'momentum'"),
    (class_with(options={"sigma": 0.5}), "sigma: expected a bf.Option, found float"),
    (class_with(options={"sigma": bf.Option(0.5, "")}), "sigma, meaning: expected a text"),
    (class_with(options={"sigma": bf.Option("x", "σ")}), "sigma: expected a number as default"),
    (class_with(options={"sigma": bf.Option(2.0, "σ", below=1)}), "'sigma': expected a default fr"),
    (class_with(needs_every_step=3), "needs_every_step: expected True or False"),
    (class_with(transform=3), "transform: expected a function or None, found 3"),
    (class_with(why_unfit=lambda self, graph: ""),
     r"why_unfit: expected a function of \(graph\), of a class a @staticmethod, found one of \(s"),
    (class_with(default_schedule=lambda: None), r"default_schedule: expected a function of \(size"),
))
def test_what_cannot_be_registered(given, words):
    with pytest.raises(bluefog_cpp.InvalidArgument, match=words):
        bf.register_algorithm(given)
    assert not any(row.name == "test_wrong" for row in core.algorithms())


def test_requirements_that_make_no_sense():
    with pytest.raises(bluefog_cpp.InvalidArgument, match="stochastic: expected one of any, "):
        bf.Mixing("diagonals")
    with pytest.raises(bluefog_cpp.InvalidArgument, match="is_fixed: expected True or False"):
        bf.Mixing("rows", is_fixed="yes")


def test_files_that_register(tmp_path, rank):
    file = tmp_path / "mine.py"
    file.write_text("import bluefog_cpp.torch as bf\n"
                    "@bf.register_algorithm\nclass Mine(bf.Algorithm):\n    name = 'test_of_file'\n"
                    "    def step(self, round, buckets):\n        for b in buckets:\n"
                    "            self.local_step(b); self.average(b)\n")
    for _ in range(2):
        assert algorithms.load(file) == ["test_of_file"]
    assert trained(rank, "test_of_file").equal(trained(rank, "atc"))
    wrong = tmp_path / "wrong.py"
    wrong.write_text("raise KeyError('x')\n")
    with pytest.raises(bluefog_cpp.InvalidArgument, match=r"wrong.py'.* found KeyError: 'x'"):
        algorithms.load(wrong)
    with pytest.raises(bluefog_cpp.InvalidArgument, match=r"none.py'.* FileNotFoundError"):
        algorithms.load(tmp_path / "none.py")
