"""Trains by an algorithm that a shared object registers, and compares with its equation in float64.

    bfrun -np 2 python own_algorithm.py libown_algorithm_object.so
"""

import os
import shutil
import sys
import tempfile

import torch

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import algorithms, topology_util

RATE, STEPS, SIZE = 0.1, 5, 7


def problem_of(rank):
    generator = torch.Generator().manual_seed(rank)
    return (torch.randn(9, SIZE, generator=generator, dtype=torch.float64),
            torch.randn(9, generator=generator, dtype=torch.float64))


def expected_rows(matrix, share):
    """One row of x for each rank: x ← (1 - ρ) ψ + ρ W ψ, ψ = x - γ ∇f."""
    problems = [problem_of(rank) for rank in range(bf.size())]
    rows = torch.zeros(bf.size(), SIZE, dtype=torch.float64)
    for _ in range(STEPS):
        gradients = torch.stack([a.T @ (a @ x - b) / len(b) for (a, b), x in zip(problems, rows)])
        stepped = rows - RATE * gradients
        rows = (1 - share) * stepped + share * matrix @ stepped
    return rows


def trained(name, **options):
    a, b = problem_of(bf.rank())
    model = torch.nn.Linear(SIZE, 1, bias=False).double()
    torch.nn.init.zeros_(model.weight)
    sgd = torch.optim.SGD(model.parameters(), lr=RATE)
    optimizer = bf.DecentralizedOptimizer(sgd, model, name, **options)
    for _ in range(STEPS):
        optimizer.zero_grad()
        (0.5 * (model(a).squeeze(1) - b).square().mean()).backward()
        optimizer.step()
    optimizer.finish()
    assert optimizer.algorithm == "partial_average"
    return model.weight.detach()[0]


def refusal_of(path):
    try:
        algorithms.load(path)
    except bluefog_cpp.InvalidArgument as error:
        assert repr(str(path)) in str(error), error
        return str(error)
    raise AssertionError(f"{path} was accepted")


def check_refused_libraries(library):
    """`library` is loaded. Another file that registers its names is refused, and so is what has no
    function for it or is no library."""
    known = [row.name for row in algorithms.core.algorithms()]
    with tempfile.TemporaryDirectory() as folder:
        copy = shutil.copy(library, os.path.join(folder, "copy.so"))
        for _ in range(2):
            assert "found 'partial_average', which partial_average has" in refusal_of(copy)
        assert "No such file" in refusal_of(os.path.join(folder, "nowhere.so"))
    assert '`extern "C" void bluefog_register_algorithms()`, found none' in refusal_of(
        torch._C.__file__)
    assert "expected a shared object that can be loaded" in refusal_of(
        os.path.join(os.path.dirname(__file__), os.pardir, "CMakeLists.txt"))
    assert [row.name for row in algorithms.core.algorithms()] == known


def main():
    bf.init()
    model = torch.nn.Linear(SIZE, 1)
    try:
        bf.DecentralizedOptimizer(torch.optim.SGD(model.parameters(), lr=RATE), model,
                                  "partial_average")
    except bluefog_cpp.InvalidArgument as error:
        assert "found 'partial_average'" in str(error), error
    else:
        raise AssertionError("an algorithm that nobody has registered was accepted")
    for _ in range(2):
        assert algorithms.load(sys.argv[1]) == ["partial_average"]
    check_refused_libraries(sys.argv[1])
    full = topology_util.FullyConnectedGraph(bf.size())
    matrix = torch.full((bf.size(), bf.size()), 1 / bf.size(), dtype=torch.float64)
    for name, share, options in (("partial_average", 0.75, {}),
                                 ("partial", 0.5, {"numbers": {"rho": 0.5}})):
        found = trained(name, schedule=full, **options)
        torch.testing.assert_close(found, expected_rows(matrix, share)[bf.rank()], rtol=0,
                                   atol=1e-12)
    bf.shutdown()


main()
