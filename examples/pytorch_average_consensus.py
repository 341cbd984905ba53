"""Every rank starts with a random vector and averages it with its neighbours until all hold the mean.

    bfrun -np 4 python examples/pytorch_average_consensus.py --topology ring
"""

import argparse

import torch

import bluefog_cpp.torch as bf
from helpers import devices, explained, plots, topologies
from helpers.counts import at_least

WORDS = {
    **dict.fromkeys(explained.WORDS, "this script trains nothing"),
    "--no-rma": "leave out --asynchronous-mode, which alone takes windows",
}


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data-size", type=at_least(1), default=100_000, help="elements of the vector"
    )
    parser.add_argument("--max-iters", type=at_least(1), default=200)
    topologies.add_arguments(parser)
    parser.add_argument(
        "--dynamic",
        "--enable-dynamic-topology",
        action="store_true",
        help="one neighbour a step, by turns",
    )
    parser.add_argument(
        "--asynchronous-mode",
        action="store_true",
        help="push-sum through windows: nobody waits for anybody",
    )
    parser.add_argument("--seed", type=int, default=2020)
    devices.add_argument(parser)
    plots.add_arguments(parser)
    explained.add_arguments(parser, WORDS)
    arguments = parser.parse_args()
    plots.check(parser, arguments)
    is_fixed = not arguments.dynamic or arguments.asynchronous_mode
    if arguments.topology in topologies.INNER_OUTER and is_fixed:
        parser.error(
            f"--virtual-topology {arguments.topology}: expected --enable-dynamic-topology, without "
            "--asynchronous-mode: this graph changes from step to step"
        )
    return arguments


def synchronous(x, arguments, report):
    is_dynamic = arguments.dynamic and bf.size() > 1
    steps = topologies.one_peer_steps(arguments) if is_dynamic else None
    for iteration in range(arguments.max_iters):
        if is_dynamic:
            send, receive = next(steps)
            weight = 1 / (len(receive) + 1)
            bf.neighbor_allreduce_(
                x,
                self_weight=weight,
                src_weights=dict.fromkeys(receive, weight),
                dst_weights=send,
                name="x",
            )
        else:
            bf.neighbor_allreduce_(x, name="x")
        report(iteration, x)


def asynchronous(x, arguments, report):
    bf.turn_on_win_ops_with_associated_p()
    bf.win_create(x, "x", zero_init=True)
    neighbors = bf.out_neighbor_ranks()
    for iteration in range(arguments.max_iters):
        receivers = neighbors
        if arguments.dynamic and neighbors:
            receivers = [neighbors[iteration % len(neighbors)]]
        share = 1 / (len(receivers) + 1)
        bf.win_accumulate(
            x,
            "x",
            self_weight=share,
            dst_weights=dict.fromkeys(receivers, share),
            require_mutex=True,
        )
        bf.win_update_then_collect("x")
        report(iteration, x / bf.win_associated_p("x"))
    # The last messages have arrived when all ranks have come here.
    bf.barrier()
    bf.win_update_then_collect("x")
    x /= bf.win_associated_p("x")
    bf.win_free("x")


def main():
    arguments = parse_arguments()
    bf.init()
    topologies.set_graph(arguments.topology, bf.size())
    device = devices.choose(arguments)
    torch.manual_seed(arguments.seed + bf.rank())
    x = torch.randn(arguments.data_size, dtype=torch.float64).to(device)
    mean = bf.allreduce(x, name="mean")
    errors = []

    def report(iteration, value):
        if plots.are_wanted(arguments):
            errors.append(float(torch.linalg.norm(value - mean) / torch.linalg.norm(mean)))
        if (iteration + 1) % max(1, arguments.max_iters // 10) == 0:
            print(
                f"[rank {bf.rank()}] iteration {iteration + 1}: error "
                f"{torch.linalg.norm(value - mean) / torch.linalg.norm(mean):.2e}",
                flush=True,
            )

    if arguments.asynchronous_mode:
        asynchronous(x, arguments, report)
    else:
        synchronous(x, arguments, report)
    error = bf.allreduce(torch.linalg.norm(x - mean) / torch.linalg.norm(mean), name="error")
    if bf.rank() == 0:
        print(f"Average consensus on {bf.size()} rank(s): mean error {float(error):.2e}")
        if plots.are_wanted(arguments):
            plots.draw(arguments, {arguments.topology: errors})


if __name__ == "__main__":
    main()
