"""Schedules and codes of classes of Python's."""

import random

import networkx as nx
import pytest
import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from conftest import needs
from simulation import flat, model_of, train


def exchange(size, pairs):
    """Ranks of a pair average, others stay."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(size))
    paired = {rank for pair in pairs for rank in pair}
    graph.add_weighted_edges_from((rank, rank, 0.5 if rank in paired else 1.0)
                                  for rank in range(size))
    graph.add_weighted_edges_from((i, j, 0.5) for pair in pairs for i, j in (pair, pair[::-1]))
    return graph


@bf.register_schedule
class Drawn(bf.Schedule):
    """Pairs that are drawn anew in each step, without an end."""

    name = "test-drawn"
    period_steps = 2**62

    def graph(self, step):
        ranks = list(range(self.size))
        random.Random(f"7 {step}").shuffle(ranks)
        return exchange(self.size, list(zip(ranks[::2], ranks[1::2])))


class Turns(bf.Schedule):
    """Two graphs by turns."""

    period_steps = 2

    def graph(self, step):
        return (topology_util.RingGraph if step else topology_util.ExponentialGraph)(self.size)


def averaged(rank, schedule, steps=4, name="atc"):
    model = model_of(rank)
    train(model, bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0), model, name,
                                           schedule=schedule, bucket_bytes=64), rank, steps)
    return flat(model)


def test_a_schedule_by_class_and_by_object_is_that_of_its_graphs(rank, size):
    expected = averaged(rank, [topology_util.ExponentialGraph(size), topology_util.RingGraph(size)])
    assert averaged(rank, Turns).equal(expected)
    assert averaged(rank, Turns(size)).equal(expected)


def test_one_that_does_not_repeat_by_its_name(rank, size):
    matrices = [Drawn(size).graph(step) for step in range(6)]
    assert averaged(rank, "test-drawn", 6).equal(averaged(rank, matrices, 6))
    mean = bf.allreduce(flat(model_of(rank)))
    found = bf.allreduce(averaged(rank, "test-drawn", 6))
    torch.testing.assert_close(found, mean, rtol=0, atol=1e-12)
    with pytest.raises(bluefog_cpp.InvalidArgument, match="at most 64 matrices"):
        averaged(rank, "test-drawn", name="choco")


def test_schedules_are_checked_like_others(rank, size):
    needs(3)
    with pytest.raises(bluefog_cpp.InvalidArgument, match="exact_diffusion expects the same W"):
        averaged(rank, "test-drawn", name="exact_diffusion")
    with pytest.raises(bluefog_cpp.InvalidArgument, match=f"{size + 1}"):
        averaged(rank, Turns(size + 1))
    bf.barrier()


def test_a_schedule_that_fails_on_one_rank(rank, size):
    needs(2)

    class Broken(Turns):
        period_steps = 2**62

        def graph(self, step):
            if step == 302 and bf.rank() == 1:
                raise LookupError(f"no graph for step {step}")
            return topology_util.FullyConnectedGraph(self.size)

    model = model_of(rank)
    optimizer = bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model,
                                          schedule=Broken(size))
    optimizer._distributed.core.resume({}, 300, 300)  # beyond the rounds that are looked at first
    kind, words = ((LookupError, "no graph for step 302") if rank == 1 else
                   (bluefog_cpp.PeerFailure, "LookupError: no graph for step 302$"))
    with pytest.raises(kind, match=words):  # where these rounds are compared
        optimizer.step()
    train(model, optimizer, rank, 1)
    with pytest.raises(kind, match=words):
        optimizer.step()
    train(model, optimizer, rank, 2)
    bf.barrier()


def test_schedules_that_differ_between_ranks(rank, size):
    needs(2)

    class Different(Turns):
        def graph(self, step):
            return topology_util.RingGraph(self.size, 0 if bf.rank() == 0 or self.size < 3 else 1) \
                if self.size > 2 else exchange(2, [(0, 1)] if bf.rank() else [])

    with pytest.raises((bluefog_cpp.MismatchError, bluefog_cpp.PeerFailure)):
        averaged(rank, Different)
    bf.barrier()


@pytest.mark.parametrize("period, odd_one", ((256, 200), (256, 255), (1024, 1000), (2**62, 63)))
def test_rounds_that_differ_late_between_ranks(period, odd_one, rank, size):
    needs(2)

    class Late(bf.Schedule):
        period_steps = period

        def graph(self, step):
            other = step == odd_one and bf.rank() == 1
            pairs = [] if other else [(0, 1)]
            return exchange(self.size, pairs)

    with pytest.raises(bluefog_cpp.MismatchError,
                       match=rf"rank 0 has W\({odd_one}\) of digest \w+, rank 1 has "
                             rf"W\({odd_one}\) of digest \w+$"):
        averaged(rank, Late)
    bf.barrier()


def test_rounds_that_differ_after_those_that_are_compared_first(rank, size):
    needs(2)

    class Later(bf.Schedule):
        period_steps = 2**62

        def graph(self, step):
            return exchange(self.size, [] if step == 70 and bf.rank() == 1 else [(0, 1)])

    model = model_of(rank)
    optimizer = bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0), model,
                                          schedule=Later, bucket_bytes=64)
    train(model, optimizer, rank, 64)
    for _ in range(2):
        with pytest.raises(bluefog_cpp.MismatchError, match=(
                r"rounds 64 to 127: expected the same on all ranks; "
                r"rank 0 has W\(70\) with rank 0: "
                r"0.5 of itself, 0.5 of rank 1, 1 to rank 1, rank 1 has W\(70\) with rank 0: 1 of "
                "itself$")):
            optimizer.step()
    bf.barrier()


def graph_of_strings(self, step):
    graph = nx.DiGraph()
    graph.add_nodes_from("ab")
    return graph


@pytest.mark.parametrize("body, words", (
    ({"graph": lambda self, step: 3}, "graph: expected a networkx.DiGraph, found"),
    ({"graph": graph_of_strings}, "graph: expected"),
    ({"graph": lambda self, step: topology_util.RingGraph(self.size + 3)},
     "graph: expected one of . ranks, found one of"),
    ({"period_steps": 0}, "period_steps: expected 1 or more, found 0"),
    ({"__init__": lambda self, size: None}, r"expected a call of super\(\).__init__\(size\)"),
))
def test_schedules_that_make_no_sense(body, words, rank):
    with pytest.raises(bluefog_cpp.InvalidArgument, match=words):
        averaged(rank, type("Wrong", (Turns,), body))


@pytest.mark.parametrize("given, words", (
    (Drawn(3), "schedule: expected a subclass of bf.Schedule, found Drawn"),
    (type("Empty", (bf.Schedule,), {"name": "empty"}), "Empty: expected a method 'graph'"),
    (type("Named", (Turns,), {"name": "Two Turns"}), "name: expected lower-case letters"),
    (type("Ring", (Turns,), {"name": "ring"}), "expected one that no schedule has, found 'ring'"),
    (type("Other", (Turns,), {"name": "test-drawn"}), "no schedule has, found 'test-drawn'"),
))
def test_what_cannot_be_registered(given, words):
    with pytest.raises(bluefog_cpp.InvalidArgument, match=words):
        bf.register_schedule(given)


def test_names_of_a_program_are_listed(rank):
    with pytest.raises(bluefog_cpp.InvalidArgument, match="none-such.*of this program test-drawn"):
        averaged(rank, "none-such")


@bf.register_compression
class Half(bf.Compression):
    """The upper half of each value."""

    name = "test-half"

    def bytes_of(self, count):
        return 2 * count

    def contraction(self, count):
        return 1 - 2.0**-15

    def encode(self, values):
        return values.to(torch.bfloat16).view(torch.uint8)

    def decode(self, code, count):
        return code.view(torch.bfloat16).to(torch.float32)


@pytest.mark.parametrize("algorithm, options", (
    ("choco", {}), ("gossip_diloco", {"schedule": "ring", "num_steps_per_communication": 2})))
def test_a_code_has_the_bits_of_the_built_in_one(algorithm, options, rank):
    values = []
    for code in ("bfloat16", "test-half", Half()):
        model = model_of(rank)
        optimizer = bf.DecentralizedOptimizer(
            torch.optim.SGD(model.parameters(), lr=0.05), model, algorithm, compression=code,
            bucket_bytes=64, **options)
        assert optimizer.compression == (code if isinstance(code, str) else "test-half")
        train(model, optimizer, rank, 6)
        values.append(flat(model))
    assert values[0].equal(values[1]) and values[0].equal(values[2])


def test_codes_that_differ_between_ranks(rank):
    needs(2)
    model = model_of(0)
    with pytest.raises(bluefog_cpp.InvalidArgument, match="compression (test-half|bfloat16)"):
        bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, "choco",
                                  compression="test-half" if rank == 0 else "bfloat16")


def test_codes_of_one_name_that_differ_between_ranks(rank):
    """They differ by parameters, or on one rank by an error."""
    needs(2)

    class Rounded(Half):
        name = "test-rounded"

        def __init__(self, share):
            self.share = share

        def contraction(self, count):
            return 0.5

        def encode(self, values):
            return super().encode(values * self.share)

    class Long(Rounded):
        def encode(self, values):
            if self.share != 1 and len(values) > 2000:
                raise LookupError("so many")
            return Half.encode(self, values)

    def make(code):
        model = model_of(0)
        return bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), model,
                                         "choco", compression=code)

    own = 1 - 0.125 * (rank == 1)
    line = r"compression test-rounded, 20000 bytes for 10000 values, of digest \w+"
    with pytest.raises(bluefog_cpp.MismatchError, match=f"rank 0 has {line}, rank 1 has {line}"):
        make(Rounded(own))
    with pytest.raises(bluefog_cpp.InvalidArgument if rank == 1 else bluefog_cpp.PeerFailure,
                       match="rank 1.*compression: LookupError: so many"):
        make(Long(own))
    make(Rounded(0.875))
    bf.barrier()


def test_a_code_that_fails_on_one_rank(rank, size):
    needs(2)
    calls = [0]

    class Failing(Half):
        name = "test-failing"

        def encode(self, values):
            calls[0] += len(values) > 1000  # once where ranks compare their codes
            return values if calls[0] == 2 and bf.rank() == 1 else super().encode(values)

    torch.manual_seed(rank)  # other models, whose first messages are no codes
    model = torch.nn.Linear(40, 40).double()
    optimizer = bf.DecentralizedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), model, "choco", compression=Failing(),
        schedule=topology_util.FullyConnectedGraph(size))

    def step():
        optimizer.zero_grad()
        model(torch.ones(1, 40, dtype=torch.float64)).square().sum().backward()
        optimizer.step()

    step()
    kind, words = ((bluefog_cpp.InvalidArgument,
                    r"encode: expected a tensor of uint8\[.*, found float32\[") if rank == 1 else
                   (bluefog_cpp.PeerFailure, "code test-failing, encode"))
    with pytest.raises(kind, match=words):
        step()
    optimizer.restart()
    step()
    step()
    bf.barrier()


@pytest.mark.parametrize("algorithm, round_words", (
    ("choco", r"choco, round \d+"), ("sparse_loco", r"outer step of round \d+"),
    ("gradient_allreduce", "gradient_allreduce")))
@pytest.mark.parametrize("how", ("raises", "returns"))
def test_a_code_that_cannot_be_decoded_on_one_rank(algorithm, round_words, how, rank, size):
    """All ranks hear of it in that round, before any has used a code, and go on together."""
    needs(2)
    fails = [False]

    class Failing(Half):
        name = "test-undecoded"

        def encode(self, values):
            self.own = super().encode(values)
            return self.own

        def decode(self, code, count):
            if fails[0] and bf.rank() == 1 and not code.equal(self.own):
                if how == "raises":
                    raise RuntimeError("no luck")
                return code
            return super().decode(code, count)

    model = torch.nn.Linear(40, 40).double()
    options = {"schedule": topology_util.FullyConnectedGraph(size)} if algorithm == "choco" else {}
    optimizer = bf.DecentralizedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.01), model, algorithm, compression=Failing(),
        **options)

    def step():
        optimizer.zero_grad()
        model(torch.full((1, 40), 1.0 + bf.rank(), dtype=torch.float64)).square().sum().backward()
        optimizer.step()

    def try_rounds():
        for _ in range(12):  # some rounds are of local steps alone, the first one sends no code
            step()

    try_rounds()
    fails[0] = True
    if rank == 1:
        kind = RuntimeError if how == "raises" else bluefog_cpp.InvalidArgument
        words = "no luck" if how == "raises" else r"code test-undecoded, decode: expected a tensor"
    else:
        kind = bluefog_cpp.PeerFailure
        words = (rf"rank {rank}, {round_words}: rank 1 could not take in codes of compression "
                 r"test-undecoded: .*(no luck|decode: expected a tensor)")
    with pytest.raises(kind, match=words):
        try_rounds()
    fails[0] = False
    optimizer.restart()
    try_rounds()
    bf.barrier()


def changed(**methods):
    return type("Changed", (Half,), {"name": "test-changed", **methods})


@pytest.mark.parametrize("given, words", (
    (3, "compression: expected a subclass of bf.Compression, found int"),
    (changed(name="int4"), "expected one that no code has, found 'int4'"),
    (changed(name="none"), "expected one that no code has, found 'none'"),
    (changed(name="A b"), "name: expected lower-case letters"),
    (changed(name="test-half"), "expected one that no code has, found 'test-half'"),
    (changed(bytes_of=lambda self, count: count), r"encode: expected torch.uint8\[1\], found"),
    (changed(contraction=lambda self, count: 0.0), "contraction: expected a number from above 0"),
    (changed(contraction=lambda self, count: 1.0), "expected a squared error of at most"),
    (changed(encode=lambda self, values: torch.randint(0, 9, (2 * len(values),)).byte()),
     "expected the same bytes each time|of at most"),
    (changed(decode=lambda self, code, count: Half.decode(self, code, count) + 1), "of at most"),
    (changed(decode=lambda self, code, count: Half.decode(self, code, count).nan_to_num()),
     "expected no finite number of"),
))
def test_codes_that_do_not_keep_what_they_promise(given, words):
    with pytest.raises(bluefog_cpp.InvalidArgument, match=words):
        bf.register_compression(given)
