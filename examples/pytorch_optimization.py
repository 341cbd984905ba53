"""Least squares and logistic regression over data that the ranks keep to themselves, by four methods.

    bfrun -np 4 python examples/pytorch_optimization.py --task logistic_regression --method gradient_tracking

Rank i knows f_i only, and all look for the x that minimises f = (Σ_i f_i) / n. Each method is compared
with the centralized solution, which is formed from the data of all ranks.
"""

import argparse
import math

import networkx
import torch

import bluefog_cpp.torch as bf
from helpers import plots, topologies
from helpers.counts import at_least, between, rate


class LeastSquares:
    """f_i(x) = ‖A_i x - b_i‖² / 2m + ρ ‖x‖² / 2"""

    def __init__(self, rows, columns, regularization):
        self.features = torch.randn(rows, columns, dtype=torch.float64)
        truth = torch.randn(columns, dtype=torch.float64)
        self.targets = self.features @ truth + 0.1 * torch.randn(rows, dtype=torch.float64)
        self.regularization = regularization

    def gradient(self, x):
        residual = self.features @ x - self.targets
        return self.features.T @ residual / len(self.targets) + self.regularization * x

    def hessian(self, x):
        return self.features.T @ self.features / len(
            self.targets
        ) + self.regularization * torch.eye(len(x), dtype=x.dtype)


class LogisticRegression:
    """f_i(x) = mean over rows of log(1 + exp(-b a·x)) + ρ ‖x‖² / 2, b = ±1"""

    def __init__(self, rows, columns, regularization):
        features = torch.randn(rows, columns, dtype=torch.float64)
        truth = torch.randn(columns, dtype=torch.float64)
        labels = (features @ truth + torch.randn(rows, dtype=torch.float64)).sign()
        self.signed = features * labels.unsqueeze(1)
        self.regularization = regularization

    def gradient(self, x):
        share = torch.sigmoid(-self.signed @ x)
        return -self.signed.T @ share / len(share) + self.regularization * x

    def hessian(self, x):
        share = torch.sigmoid(self.signed @ x)
        scaled = self.signed * (share * (1 - share)).unsqueeze(1)
        return self.signed.T @ scaled / len(share) + self.regularization * torch.eye(
            len(x), dtype=x.dtype
        )


TASKS = {"linear_regression": LeastSquares, "logistic_regression": LogisticRegression}


def centralized(problem, columns):
    """Newton's method on the mean of all ranks' functions; exact after a few steps."""
    x = torch.zeros(columns, dtype=torch.float64)
    for _ in range(50):
        gradient = bf.allreduce(problem.gradient(x), name="gradient")
        if gradient.norm() < 1e-14:
            break
        x -= torch.linalg.solve(bf.allreduce(problem.hessian(x), name="hessian"), gradient)
    return x


def diffusion(problem, x, rate):
    """x ← W (x - γ g(x)). Comes to a distance from the solution that shrinks with γ."""
    while True:
        x = bf.neighbor_allreduce(x - rate * problem.gradient(x), name="x")
        yield x


def exact_diffusion(problem, x, rate):
    """ψ' = x - γ g(x);  x ← (I + W) / 2 (ψ' + x - ψ). Corrects what diffusion is off by; wants a
    symmetric W."""
    psi = x
    while True:
        psi_next = x - rate * problem.gradient(x)
        phi = psi_next + x - psi
        psi = psi_next
        x = (phi + bf.neighbor_allreduce(phi, name="phi")) / 2
        yield x


def gradient_tracking(problem, x, rate):
    """x' = W x - γ y;  y ← W y + g(x') - g(x). y follows the mean of all ranks' gradients."""
    gradient = problem.gradient(x)
    y = gradient
    while True:
        # Both averages travel together.
        handles = [
            bf.neighbor_allreduce_nonblocking(value, name=name)
            for name, value in (("x", x), ("y", y))
        ]
        x_mixed, y_mixed = (bf.synchronize(handle) for handle in handles)
        x = x_mixed - rate * y
        previous, gradient = gradient, problem.gradient(x)
        y = y_mixed + gradient - previous
        yield x


def push_diging(problem, x, rate):
    """u' = C (u - γ y), v' = C v, x' = u' / v', y ← C y + g(x') - g(x). The columns of C sum to 1, its
    rows need not: each rank only has to know how many others it sends to."""
    receivers, senders = bf.out_neighbor_ranks(), bf.in_neighbor_ranks()
    share = 1 / (len(receivers) + 1)
    gradient = problem.gradient(x)
    u, y, v = x, gradient, torch.ones(1, dtype=x.dtype)
    while True:
        packed = bf.neighbor_allreduce(
            torch.cat([u - rate * y, y, v]),
            self_weight=share,
            src_weights=dict.fromkeys(senders, 1.0),
            dst_weights=dict.fromkeys(receivers, share),
            enable_topo_check=False,
            name="u, y, v",
        )
        u, y_mixed, v = packed.split([len(x), len(x), 1])
        x = u / v
        previous, gradient = gradient, problem.gradient(x)
        y = y_mixed + gradient - previous
        yield x


METHODS = {
    "diffusion": diffusion,
    "exact_diffusion": exact_diffusion,
    "gradient_tracking": gradient_tracking,
    "push_diging": push_diging,
}


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--task", choices=TASKS, default="logistic_regression")
    parser.add_argument("--method", choices=METHODS, nargs="+", default=list(METHODS))
    topologies.add_argument(parser, default="ring")
    parser.add_argument(
        "--max-iter", "--max-iters", dest="max_iters", type=at_least(1), default=1000
    )
    parser.add_argument("--lr", type=rate, default=0.1)
    parser.add_argument("--rows", type=at_least(1), default=100, help="of each rank's data")
    parser.add_argument("--columns", type=at_least(1), default=10)
    parser.add_argument("--regularization", type=between(0), default=1e-2)
    parser.add_argument("--seed", type=int, default=42)
    plots.add_arguments(parser)
    arguments = parser.parse_args()
    plots.check(parser, arguments)
    return arguments


def set_graph(method, topology):
    """Push-DIGing goes without symmetry, so it gets an edge more in one direction."""
    graph = topologies.graph_named(topology, bf.size())
    if method == "push_diging" and bf.size() > 3:
        graph = networkx.DiGraph(graph)
        graph.add_edge(0, 2, weight=1.0)
    bf.set_topology(graph, is_weighted=method != "push_diging")


def run(arguments, method, problem, solution):
    """Relative errors of this rank's x, by iteration."""
    set_graph(method, arguments.topology)
    steps = METHODS[method](problem, torch.zeros_like(solution), arguments.lr)
    return [
        float((next(steps) - solution).norm() / solution.norm()) for _ in range(arguments.max_iters)
    ]


def main():
    arguments = parse_arguments()
    bf.init()
    torch.manual_seed(arguments.seed + bf.rank())
    problem = TASKS[arguments.task](arguments.rows, arguments.columns, arguments.regularization)
    solution = centralized(problem, arguments.columns)
    errors = {}
    for method in arguments.method:
        errors[method] = run(arguments, method, problem, solution)
        worst = float(bf.allgather(torch.tensor([errors[method][-1]]), name="errors").max())
        if bf.rank() == 0:
            print(
                f"{arguments.task}, {method}: {worst:.2e} from the centralized solution after "
                f"{arguments.max_iters} iterations"
                f"{'' if math.isfinite(worst) else ': it diverges; try a smaller --lr'}",
                flush=True,
            )
    if plots.are_wanted(arguments) and bf.rank() == 0:
        plots.draw(arguments, errors)


if __name__ == "__main__":
    main()
