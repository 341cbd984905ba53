"""The decisions of an elastic pipeline, which the C++ core makes without a tensor."""

from collections.abc import Sequence

from bluefog_cpp._extension import core

Skips = Sequence[tuple[int, int]]


def freeze_bound(layers: int, alpha: float, times: int) -> int:
    """The most of `layers` layers that may be frozen after `times` decisions:
    ceil(L (1 − (1−α)^T) − 1e-9).

    Raises InvalidArgument for fewer than 1 layer, an alpha outside (0, 1) or negative times.
    """
    return core.freeze_bound(layers, alpha, times)


def partition_layers(costs: Sequence[float], stages: int, *, frozen: int = 0, skips: Skips = (),
                     slack: float = 0.05, frozen_share: float = core.frozen_share) -> list[int]:
    """The first layer of each stage, of stages of about equal cost.

    A stage takes layers while its sum stays at most the mean of what is left, and `slack` of it;
    where two to six times the slack makes the costliest stage cheaper, that is the slack.
    The first `frozen` layers count `frozen_share` of their cost; with 1, stages stay as they are,
    whatever is frozen. No stage ends between the two layers of a pair of
    `skips`, of which the second reads the first one's output.

    Raises InvalidArgument for more stages than groups of layers that can be cut, costs that are
    negative or all 0, and a share that is not above 0, up to 1.
    """
    return core.partition_layers(list(costs), stages, frozen, list(skips), slack, frozen_share)


def initial_micro_batches(stages: int) -> int:
    """The number of micro-batches to begin with: 1 for one stage, else 16 or twice the stages."""
    return core.initial_micro_batches(stages)


def pipeline_bubble(schedule: str, stages: int, micro_batches: int, *, forward: float = 1.0,
                    backward: float = 2.0) -> float:
    """The share of the time in which equal stages do not compute, in a simulation of "gpipe" or
    "1f1b": (K − 1)/(M + K − 1). Raises InvalidArgument for another schedule."""
    return core.pipeline_bubble(schedule, stages, micro_batches, forward, backward)


class ElasticPlan:
    """How deep to freeze, and how many stages that leaves work for, decision by decision. Every
    rank has its own, with the same arguments.

    costs: of the model's layers (`ElasticPipeline.costs`). stages, skips, slack, frozen_share: as
    at the start.
    alpha: the share of the unfrozen layers that freezes at a time. freeze_last: whether the
    encoder's last layer may freeze. embedding_layers freeze with the encoder's first layer,
    head_layers never. freezes, shrinks: parts that may be switched off.

    Raises InvalidArgument for what `partition_layers` and `freeze_bound` refuse, and for an
    embedding and a head that leave no layer.
    """

    def __init__(self, costs: Sequence[float], stages: int, *, skips: Skips = (),
                 slack: float = 0.05, frozen_share: float = core.frozen_share, alpha: float = 1 / 3,
                 freeze_last: bool = False, embedding_layers: int = 0, head_layers: int = 1,
                 freezes: bool = True, shrinks: bool = True) -> None:
        self._plan = core.ElasticPlan(list(costs), stages, list(skips), slack, frozen_share,
                                      alpha, freeze_last, embedding_layers, head_layers, freezes,
                                      shrinks)

    def advance(self, norms: Sequence[float] = ()) -> tuple[int, int]:
        """The next (stages, frozen layers). norms: of all layers' gradients
        (`ElasticPipeline.gradient_norms`), of which the least limits the depth; none: by the bound
        alone. Raises InvalidArgument for norms of another number of layers."""
        return self._plan.advance(list(norms))

    @property
    def depth(self) -> int:
        """The encoder's frozen layers."""
        return self._plan.depth


class EpochShares:
    """Deals an epoch's samples to however many pipelines there are: each sample is seen once in an
    epoch, whatever changes on the way. Every rank has its own, with the same arguments.

    Raises InvalidArgument for less than 1 sample or row.
    """

    def __init__(self, samples: int, global_batch: int, seed: int = 0) -> None:
        self._shares = core.EpochShares(samples, global_batch, seed)

    def begin_epoch(self, epoch: int) -> None:
        """Begins an epoch, in an order of its own."""
        self._shares.begin_epoch(epoch)

    @property
    def left(self) -> int:
        """The number of samples that the epoch has left."""
        return self._shares.left

    def next(self, replicas: int, replica: int) -> tuple[int, list[int]]:
        """The rows of the next step in all, and the samples of one of `replicas` pipelines.
        Raises StateError at the end of the epoch."""
        return self._shares.next(replicas, replica)
