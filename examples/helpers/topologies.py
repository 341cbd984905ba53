"""The graphs that --topology and --virtual-topology name, by BlueFog's names and this package's."""

import argparse
import pathlib
import sys

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util

GRAPHS = {
    "expo2": topology_util.ExponentialGraph,
    "expo3": lambda size: topology_util.ExponentialGraph(size, base=3),
    "expo4": lambda size: topology_util.ExponentialGraph(size, base=4),
    "ring": topology_util.RingGraph,
    "mesh": topology_util.MeshGrid2DGraph,
    "star": topology_util.StarGraph,
    "full": topology_util.FullyConnectedGraph,
}
OTHER_NAMES = {
    "exponential": "expo2",
    "power2": "expo2",
    "power_two_ring": "expo2",
    "InnerOuterExp2": "InnerOuterExpo2",
}
FILE = "or a file of lines 'i j [weight]', as bftopo takes"
INNER_OUTER = {
    "InnerOuterRing": topology_util.GetInnerOuterRingDynamicSendRecvRanks,
    "InnerOuterExpo2": topology_util.GetInnerOuterExpo2DynamicSendRecvRanks,
}


def graph_of(*names):
    """A type for argparse: one of these names, of which others become the first, or a file."""
    def parse(text):
        name = OTHER_NAMES.get(text, text)
        if name not in names and not pathlib.Path(name).exists():
            raise argparse.ArgumentTypeError(
                f"invalid choice: {name!r} (choose from {', '.join(names)}, or a file of lines "
                "'i j [weight]')"
            )
        return name
    return parse


def add_argument(parser, default="expo2"):
    """For scripts whose graph stays as it is."""
    parser.add_argument(
        "--topology",
        "--virtual-topology",
        metavar="GRAPH",
        type=graph_of(*GRAPHS),
        default=default,
        help=f"who averages with whom (default: %(default)s): {', '.join(GRAPHS)}, {FILE}",
    )


def add_arguments(parser):
    """For scripts whose graph may change from step to step."""
    parser.add_argument(
        "--virtual-topology",
        "--topology",
        dest="topology",
        metavar="GRAPH",
        type=graph_of(*GRAPHS, *INNER_OUTER),
        default="expo2",
        help=f"who averages with whom (default: %(default)s): {', '.join((*GRAPHS, *INNER_OUTER))}, "
        f"{FILE}; InnerOuter graphs go by turns inside a machine and to another",
    )
    parser.add_argument(
        "--local-size",
        type=int,
        default=-1,
        help="ranks of a machine, in InnerOuter graphs; default: those of one host",
    )


def set_graph(name, size):
    """Collective. InnerOuter graphs have their own neighbours in each step, whatever is set."""
    if name not in INNER_OUTER and name != "expo2":
        bf.set_topology(graph_named(name, size), is_weighted=True)


def graph_named(name, size):
    """A graph by its name, or that of a file."""
    return GRAPHS[name](size) if name in GRAPHS else topology_util.EdgeListGraph(name, size)


def one_peer_steps(arguments):
    """Who sends to this rank and hears from it, step by step."""
    if arguments.topology in INNER_OUTER:
        local_size = bf.local_size() if arguments.local_size < 1 else arguments.local_size
        try:
            return INNER_OUTER[arguments.topology](bf.size(), local_size, bf.rank())
        except bluefog_cpp.InvalidArgument as error:
            if bf.rank() == 0:
                sys.stderr.write(
                    f"--virtual-topology {arguments.topology}: {error}; --local-size makes machines of "
                    f"{bf.size()} ranks\n"
                )
            raise SystemExit(2) from None
    return topology_util.GetDynamicOnePeerSendRecvRanks(bf.load_topology(), bf.rank())
