"""Every rank starts with a random vector and averages it with its neighbours until all hold the mean.

    bfrun -np 4 python examples/pytorch_average_consensus.py --topology ring
"""

import argparse

import torch

import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from helpers.counts import at_least

TOPOLOGIES = {
    "exponential": topology_util.ExponentialGraph,
    "ring": topology_util.RingGraph,
    "mesh": topology_util.MeshGrid2DGraph,
    "star": topology_util.StarGraph,
    "full": topology_util.FullyConnectedGraph,
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data-size", type=at_least(1), default=100_000, help="elements of the vector")
    parser.add_argument("--max-iters", type=at_least(1), default=100)
    parser.add_argument("--topology", choices=TOPOLOGIES, default="exponential")
    parser.add_argument("--dynamic", action="store_true", help="one neighbour a step, by turns")
    parser.add_argument("--asynchronous-mode", action="store_true",
                        help="push-sum through windows: nobody waits for anybody")
    parser.add_argument("--seed", type=int, default=42)
    return parser.parse_args()


def synchronous(x, iterations, is_dynamic, report):
    steps = topology_util.GetDynamicOnePeerSendRecvRanks(bf.load_topology(), bf.rank())
    for iteration in range(iterations):
        if is_dynamic and bf.size() > 1:
            send, receive = next(steps)
            weight = 1 / (len(receive) + 1)
            bf.neighbor_allreduce_(x, self_weight=weight, src_weights=dict.fromkeys(receive, weight),
                                   dst_weights=send, name="x")
        else:
            bf.neighbor_allreduce_(x, name="x")
        report(iteration, x)


def asynchronous(x, iterations, report):
    bf.turn_on_win_ops_with_associated_p()
    bf.win_create(x, "x", zero_init=True)
    receivers = bf.out_neighbor_ranks()
    share = 1 / (len(receivers) + 1)
    for iteration in range(iterations):
        bf.win_accumulate(x, "x", self_weight=share, dst_weights=dict.fromkeys(receivers, share),
                          require_mutex=True)
        bf.win_update_then_collect("x")
        report(iteration, x / bf.win_associated_p("x"))
    # What was sent last has arrived when all have come here.
    bf.barrier()
    bf.win_update_then_collect("x")
    x /= bf.win_associated_p("x")
    bf.win_free("x")


def main():
    arguments = parse_arguments()
    bf.init(TOPOLOGIES[arguments.topology], is_weighted=True)
    torch.manual_seed(arguments.seed + bf.rank())
    x = torch.randn(arguments.data_size, dtype=torch.float64)
    mean = bf.allreduce(x, name="mean")

    def report(iteration, value):
        if (iteration + 1) % max(1, arguments.max_iters // 10) == 0:
            print(f"[rank {bf.rank()}] iteration {iteration + 1}: error "
                  f"{torch.linalg.norm(value - mean) / torch.linalg.norm(mean):.2e}", flush=True)

    if arguments.asynchronous_mode:
        asynchronous(x, arguments.max_iters, report)
    else:
        synchronous(x, arguments.max_iters, arguments.dynamic, report)
    error = bf.allreduce(torch.linalg.norm(x - mean) / torch.linalg.norm(mean), name="error")
    if bf.rank() == 0:
        print(f"Average consensus on {bf.size()} rank(s): mean error {float(error):.2e}")


if __name__ == "__main__":
    main()
