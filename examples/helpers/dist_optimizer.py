"""The option --dist-optimizer and its companions, of all scripts that train."""

import bluefog_cpp.torch as bf
from bluefog_cpp import topology_util
from helpers import explained, topologies

NAMES = (
    "neighbor_allreduce",
    "hierarchical_neighbor_allreduce",
    "allreduce",
    "gradient_allreduce",
    "win_put",
    "pull_get",
    "push_sum",
    "empty",
    "horovod",
)
BY_TURNS = ("neighbor_allreduce", "hierarchical_neighbor_allreduce", "win_put", "pull_get")
STYLED = ("neighbor_allreduce", "hierarchical_neighbor_allreduce", "allreduce", "empty")
WINDOWS = {"win_put": bf.DistributedWinPutOptimizer, "pull_get": bf.DistributedPullGetOptimizer}


def add_arguments(parser, more=()):
    """Adds the options; `more` are names that only this script knows."""
    parser.add_argument("--dist-optimizer", choices=(*NAMES, *more), default="neighbor_allreduce")
    parser.add_argument(
        "--atc-style", action="store_true", help="adapt, then combine; else adapt with combine"
    )
    turns = parser.add_mutually_exclusive_group()
    turns.add_argument(
        "--disable-dynamic-topology",
        action="store_true",
        default=None,
        help="all neighbours in each step, in place of one by turns",
    )
    turns.add_argument(
        "--enable-dynamic-topology",
        action="store_false",
        default=None,
        dest="disable_dynamic_topology",
        help=f"one neighbour by turns: the default of {', '.join(BY_TURNS)}",
    )
    topologies.add_arguments(parser)
    explained.add_arguments(parser)


def check(parser, arguments):
    """Refuses options that do not go together."""
    if arguments.disable_dynamic_topology is False and arguments.dist_optimizer not in BY_TURNS:
        parser.error(
            f"--enable-dynamic-topology: expected --dist-optimizer {', '.join(BY_TURNS[:-1])} or "
            f"{BY_TURNS[-1]}, found {arguments.dist_optimizer}, which does not go to one neighbour "
            "by turns"
        )
    if arguments.topology not in topologies.INNER_OUTER:
        if arguments.local_size >= 1:
            parser.error(
                f"--local-size: expected --virtual-topology {' or '.join(topologies.INNER_OUTER)}, "
                f"whose machines it makes, found {arguments.topology}"
            )
        return
    if arguments.disable_dynamic_topology or arguments.dist_optimizer != "neighbor_allreduce":
        parser.error(
            f"--virtual-topology {arguments.topology}: expected --dist-optimizer "
            "neighbor_allreduce without --disable-dynamic-topology: this graph changes from "
            f"step to step, found --dist-optimizer {arguments.dist_optimizer}"
            f"{' --disable-dynamic-topology' if arguments.disable_dynamic_topology else ''}"
        )


def wrap(arguments, optimizer, model, **options):
    """Collective. The distributed optimizer of that name around `optimizer`, over that graph."""
    name = arguments.dist_optimizer
    topologies.set_graph(arguments.topology, bf.size())
    if arguments.atc_style and name not in STYLED and bf.rank() == 0:
        print(f"--atc-style: without effect, since {name} has no such choice")
    if name == "horovod":
        if bf.rank() == 0:
            print("horovod: gradient all-reduce, which is what it does, by bluefog_cpp's own means")
        name = "gradient_allreduce"
    if name == "gradient_allreduce":
        return bf.DistributedGradientAllreduceOptimizer(optimizer, model, **options)
    if name == "push_sum":
        return bf.DistributedPushSumOptimizer(optimizer, model, **options)
    if name in WINDOWS:
        return WINDOWS[name](optimizer, model, **options)
    if name == "hierarchical_neighbor_allreduce":
        bf.set_machine_topology(topology_util.ExponentialGraph(bf.machine_size()))
    make = (
        bf.DistributedAdaptThenCombineOptimizer
        if arguments.atc_style
        else bf.DistributedAdaptWithCombineOptimizer
    )
    return make(optimizer, model, bf.CommunicationType[name], **options)


class Turns:
    """One neighbour in each step, by turns, where the optimizer can."""

    def __init__(self, arguments, optimizer):
        self._optimizer = optimizer
        self._begin(arguments)
        bf.on_shrink(lambda: self._begin(arguments))

    def _begin(self, arguments):
        self._set, self._steps = None, None
        if arguments.disable_dynamic_topology:
            return
        name = arguments.dist_optimizer
        if name == "hierarchical_neighbor_allreduce":
            if bf.machine_size() > 1 and bf.is_homogeneous():
                self._set = self._set_machines
                self._steps = topology_util.GetExp2DynamicSendRecvMachineRanks(
                    bf.size(), bf.local_size(), bf.rank(), bf.local_rank()
                )
        elif bf.size() > 1:
            self._set = {
                "neighbor_allreduce": self._set_neighbors,
                "win_put": self._set_receivers,
                "pull_get": self._set_senders,
            }.get(name)
            self._steps = topologies.one_peer_steps(arguments)

    def next(self):
        """Before each step."""
        if self._set is not None and not getattr(self._optimizer, "passes_over", False):
            self._set(*next(self._steps))

    def _set_neighbors(self, send, receive):
        weight = 1 / (len(receive) + 1)
        self._optimizer.dst_weights = send
        self._optimizer.src_weights = dict.fromkeys(receive, weight)
        self._optimizer.self_weight = weight

    def _set_machines(self, send, receive):
        weight = 1 / (len(receive) + 1)
        self._optimizer.dst_machine_weights = send
        self._optimizer.src_machine_weights = dict.fromkeys(receive, weight)
        self._optimizer.self_weight = weight

    def _set_receivers(self, send, _):
        self._optimizer.dst_weights = send

    def _set_senders(self, _, receive):
        self._optimizer.src_weights = dict.fromkeys(receive, 1.0)
