"""The graphs that --topology and --virtual-topology name, by BlueFog's names and this package's."""

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
INNER_OUTER = {
    "InnerOuterRing": topology_util.GetInnerOuterRingDynamicSendRecvRanks,
    "InnerOuterExpo2": topology_util.GetInnerOuterExpo2DynamicSendRecvRanks,
}


def one_name(text):
    """A type for argparse: other names of a graph become the first."""
    return OTHER_NAMES.get(text, text)


def add_argument(parser, default="expo2"):
    """For scripts whose graph stays as it is."""
    parser.add_argument(
        "--topology",
        "--virtual-topology",
        choices=GRAPHS,
        type=one_name,
        default=default,
        help="who averages with whom (default: %(default)s)",
    )


def add_arguments(parser):
    """For scripts whose graph may change from step to step."""
    parser.add_argument(
        "--virtual-topology",
        "--topology",
        dest="topology",
        type=one_name,
        choices=(*GRAPHS, *INNER_OUTER),
        default="expo2",
        help="who averages with whom (default: %(default)s); InnerOuter graphs go by turns "
        "inside a machine and to another",
    )
    parser.add_argument(
        "--local-size",
        type=int,
        default=-1,
        help="ranks of a machine, in InnerOuter graphs; default: those of one host",
    )


def set_graph(name, size):
    """Collective. InnerOuter graphs have their own neighbours in each step, whatever is set."""
    if name in GRAPHS and name != "expo2":
        bf.set_topology(GRAPHS[name](size), is_weighted=True)


def one_peer_steps(arguments):
    """Who sends to this rank and hears from it, step by step."""
    if arguments.topology in INNER_OUTER:
        local_size = bf.local_size() if arguments.local_size < 1 else arguments.local_size
        return INNER_OUTER[arguments.topology](bf.size(), local_size, bf.rank())
    return topology_util.GetDynamicOnePeerSendRecvRanks(bf.load_topology(), bf.rank())
