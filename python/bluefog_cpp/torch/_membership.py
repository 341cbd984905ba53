"""Going on without ranks that are lost.

With `BLUEFOG_ON_FAILURE=shrink`, which `bfrun --min-np` sets, the end of one rank is no end of
the others: their calls raise RankLostError, `shrink` makes the group of those that are left, and
wrapped optimizers call it by themselves.
"""

import itertools
import json
from collections.abc import Callable, Iterator, Sized
from typing import Any, NamedTuple, TypeVar

import torch

from bluefog_cpp import _arguments
from bluefog_cpp._arguments import checked
from bluefog_cpp._extension import core
from bluefog_cpp.errors import RankLostError
from bluefog_cpp.torch._parameters import take_over_state
from bluefog_cpp.torch._runtime import Runtime, current

T = TypeVar("T")


class Loss(NamedTuple):
    """A rank that does not take part any more."""

    rank: int
    """Its number in the launch."""
    epoch: int
    """The first one without it."""
    cause: str
    """A clause, the same on all ranks."""


class Membership(NamedTuple):
    """The ranks that take part, by their numbers in the launch."""

    epoch: int
    """How often ranks have gone on without others."""
    ranks: list[int]
    """The number in the launch of rank 0, 1, … of now."""
    lost: list[Loss]
    """The ranks that were lost, by epoch."""


def membership() -> Membership:
    """Who takes part, and who was lost. Local."""
    epoch, ranks, lost = current().context.membership
    return Membership(epoch, ranks, [Loss(*loss) for loss in lost])


def on_shrink(callback: Callable[[], None]) -> Callable[[], None]:
    """Has `callback()` called on every rank that is left, each time that ranks have gone on without
    others: once `rank()` and `size()` are new and wrapped optimizers have moved. Local.

    Returns the callback, so that it may decorate one. Raises ArgumentTypeError for something else
    than a function.
    """
    checked("on_shrink", "callback", _arguments.function, callback)
    current().when_shrunk.append(callback)
    return callback


def shrink() -> Membership:
    """Collective over the ranks that live, in no order with other calls: goes on with them.

    Ranks are numbered anew in their order (`rank`, `size`). The default topology is made for the
    new number; another one goes on without the lost ranks, as `topology_util.without` says. Wrapped
    optimizers go on from the same step: ranks that were behind pass over the steps up to it,
    parameters become their mean over the ranks (with gradient all-reduce those of the rank that was
    furthest, with the optimizer's state), and corrections begin anew. Calls in flight raise
    RankLostError where they are waited for. Windows are gone, and window optimizers have ended:
    make them anew. The graph of the machines goes where a whole machine is lost.

    Ranks that have ended, left, or whose host is lost are not waited for; others for
    BLUEFOG_TIMEOUT, then they are left out, and get StateError where they come later. Returns who
    takes part. Raises UnsupportedError where MPI has started the ranks.
    """
    runtime = current()
    while True:
        try:
            runtime.move_to(runtime.context.shrink())
            _take_along(runtime)
            break
        except RankLostError:  # another one
            continue
    for callback in list(runtime.when_shrunk):
        callback()
    return membership()


def survive(function: Callable[[], T]) -> T:
    """`function()`, a part of a program that communicates outside of optimizers' steps, such as the
    mean of the ranks' accuracies. Collective, in the same order on all ranks.

    Where a rank is lost meanwhile, all that are left `shrink` and call `function` again, unless
    it had ended on all of them. So all get a result over the same ranks. `function` may be called
    several times, and ends what it starts. Cost besides: a `barrier`. Raises what `function`
    raises, and RankLostError unless `BLUEFOG_ON_FAILURE=shrink`.
    """
    checked("survive", "function", _arguments.function, function)
    runtime = current()
    number = runtime.survived_calls
    while True:
        try:
            result = function()
            core.barrier(runtime.context)
            break
        except RankLostError:
            if not runtime.context.shrinks_on_failure:
                raise
        shrink()
        if runtime.furthest_survived_call > number:
            break  # nobody ends it before all have a result
    runtime.survived_calls = number + 1
    return result


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Deals the samples of a data set to the ranks, and deals anew what is left where ranks are
    lost in the middle of an epoch: all samples of an epoch are drawn by ranks that live, each of
    which draws as many as the others.

        loader = DataLoader(data, batch_size=64, sampler=bf.ElasticSampler(data))
        for epoch in range(epochs):
            loader.sampler.set_epoch(epoch)
            for batch in loader: ...

    Collective where ranks are lost: all ranks make theirs alike, in the same order. A sample counts
    as drawn when the loader has asked for it: what its workers have fetched ahead goes on to be
    trained on. Some samples are drawn twice where their number is no multiple of that of the ranks.
    """

    _numbers = itertools.count()

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0):
        """dataset: something with a length, at least 1. shuffle: whether each epoch has an order of
        its own. seed: of these orders, the same on all ranks. Raises InvalidArgument for others."""
        call = "ElasticSampler"
        self._count: int = checked(call, "dataset", _arguments.length, dataset)
        self._shuffles: bool = checked(call, "shuffle", _arguments.switch, shuffle)
        self._seed: int = checked(call, "seed", _arguments.at_least(0), seed)
        self.number = next(self._numbers)
        self._epoch = 0
        self._deals: dict[int, _Deal] = {}
        current().samplers.add(self)

    def set_epoch(self, epoch: int) -> None:
        """The epoch that comes, whose order it has; those before it are over. Raises
        InvalidArgument for anything but a number of 0 or more."""
        self._epoch = checked("ElasticSampler.set_epoch", "epoch", _arguments.at_least(0), epoch)
        self._deals = {each: deal for each, deal in self._deals.items() if each >= self._epoch}

    def __len__(self) -> int:
        """The samples that this rank draws in the epoch."""
        return len(self._deal().own)

    def __iter__(self) -> Iterator[int]:
        deal = self._deal()
        if deal.drawn == len(deal.own):  # the same epoch once more
            deal = self._first_deal(self._epoch, membership().ranks)
            self._deals[self._epoch] = deal
        while deal.drawn < len(deal.own):
            index = int(deal.own[deal.drawn])
            deal.drawn += 1
            yield index
            deal = self._deals.get(deal.epoch, deal)

    def _deal(self) -> "_Deal":
        if self._epoch not in self._deals:
            self._deals[self._epoch] = self._first_deal(self._epoch, membership().ranks)
        return self._deals[self._epoch]

    def _first_deal(self, epoch: int, members: list[int]) -> "_Deal":
        size = len(members)
        order = torch.arange(self._count)
        if self._shuffles:
            order = order[self._order(epoch, self._count)]
        each = -(-self._count // size)
        padded = order.repeat(-(-each * size // self._count))[:each * size]
        return _Deal(epoch, members, [padded[rank::size] for rank in range(size)])

    def _order(self, epoch: int, count: int) -> torch.Tensor:
        return torch.randperm(count,
                              generator=torch.Generator().manual_seed(self._seed + epoch))

    def deal_anew(self) -> None:
        """Collective over the ranks that are left: deals what no one of them has drawn of the epoch
        that the furthest is in."""
        own = {"epoch": self._epoch,
               "deals": {epoch: (deal.drawn, deal.members)
                         for epoch, deal in self._deals.items()}}
        states = [json.loads(each) for each in core.gather_bytes(
            current().context, "shrink", json.dumps(own).encode())]
        epoch = max(each["epoch"] for each in states)
        dealt = [each["deals"].get(str(epoch), (0, [])) for each in states]
        members = max((members for _, members in dealt), key=len)
        if not members:
            return  # nobody has begun it
        before = self._deals.get(epoch)
        while before is not None and before.members != members:
            before = before.before  # ranks were lost while it was dealt anew
        if before is None:
            before = self._first_deal(epoch, members)
        left = membership().ranks
        shares = [before.shares[members.index(rank)] for rank in left]
        drawn = [int(count) for count, _ in dealt]
        self._deals[epoch] = self._deal_rest(before, left, shares, drawn)

    def _deal_rest(self, before: "_Deal", left: list[int], shares: list[torch.Tensor],
                   drawn: list[int]) -> "_Deal":
        taken = torch.zeros(self._count, dtype=torch.bool)
        for share, count in zip(shares, drawn):
            taken[share[:count]] = True
        rest = (~taken).nonzero().flatten()
        if self._shuffles:
            rest = rest[self._order(before.epoch, len(rest))]
        total = -(-(sum(drawn) + len(rest)) // len(left))
        wanted = [max(total - count, 0) for count in drawn]
        source = rest if len(rest) else shares[0]
        padded = source.repeat(-(-max(sum(wanted), 1) // len(source)))
        ends = list(itertools.accumulate(wanted))
        return _Deal(before.epoch, left,
                     [torch.cat([share[:count], padded[end - more:end]])
                      for share, count, end, more in zip(shares, drawn, ends, wanted)],
                     drawn[current().rank], before)


class _Deal:
    """The samples of an epoch, by rank."""

    def __init__(self, epoch: int, members: list[int], shares: list[torch.Tensor], drawn: int = 0,
                 before: "_Deal | None" = None):
        self.epoch = epoch
        self.members = members
        """The numbers in the launch of the ranks for which it is."""
        self.shares = shares
        self.drawn = drawn
        """How many of its own this rank has drawn."""
        self.before = before

    @property
    def own(self) -> torch.Tensor:
        return self.shares[self.members.index(current().context.membership[1][current().rank])]


def survived_step(step: Callable[[], Any]) -> Any:
    """`step()` of an optimizer; where a rank is lost in it, what it has returned so far."""
    try:
        return step()
    except RankLostError as error:
        if not current().context.shrinks_on_failure:
            raise
        loss = error.result
    shrink()
    return loss


def _take_along(runtime: Runtime) -> None:
    """Moves all that stands on the ranks to those that are left."""
    context = runtime.context
    ended = core.gather_bytes(context, "shrink", str(runtime.survived_calls).encode())
    runtime.furthest_survived_call = max(int(count) for count in ended)
    for optimizer in runtime.optimizers_in_order():
        if optimizer.has_ended:
            continue
        if optimizer.stands_on_windows:
            optimizer.end_with_windows()
            continue
        furthest = optimizer.move_to(context.duplicate())
        if furthest is not None:
            take_over_state("shrink", optimizer.wrapped, furthest)
    for sampler in sorted(runtime.samplers, key=lambda each: each.number):
        sampler.deal_anew()
    if context.rank == 0:
        epoch, ranks, lost = context.membership
        without = ", ".join(f"rank {rank} ({cause})" for rank, since, cause in lost
                            if since == epoch)
        context.log_warning(f"shrink: {len(ranks)} rank{'s' if len(ranks) > 1 else ''} go on "
                            f"without {without or 'any other one'}")
