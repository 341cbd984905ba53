"""Going on without ranks that are lost.

With `BLUEFOG_ON_FAILURE=shrink`, which `bfrun --min-np` sets, the end of one rank is no end of
the others: their calls raise RankLostError, `shrink` makes the group of those that are left, and
wrapped optimizers call it by themselves.
"""

import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from bluefog_cpp import _arguments
from bluefog_cpp._arguments import checked
from bluefog_cpp._extension import core
from bluefog_cpp.errors import PeerFailure, RankLostError
from bluefog_cpp.torch._parameters import take_over_state
from bluefog_cpp.torch._runtime import Runtime, current
from bluefog_cpp.torch._wrapped.steering import forget_ranks

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
    others: once `rank()` and `size()` are new and wrapped optimizers have moved. It may
    communicate; where another rank is lost meanwhile, it is called again after that. Local.

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
    RankLostError where they are waited for; where no rank is lost, others have a second to end
    theirs. Windows of the program are gone: make them anew. The graph of the machines goes where a
    whole machine is lost.

    Ranks that have ended, left, or whose host is lost are not waited for; others for
    BLUEFOG_TIMEOUT, then they are left out, and get StateError where they come later. Returns who
    takes part. Raises UnsupportedError where MPI has started the ranks.
    """
    runtime = current()
    while True:
        try:
            runtime.move_to(runtime.context.shrink())
            _take_along(runtime)
            for callback in list(runtime.when_shrunk):
                callback()
            return membership()
        except RankLostError:  # another one
            continue


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
    if runtime.is_surviving:
        return function()  # the outer call repeats it
    runtime.is_surviving = True
    try:
        return _survived(runtime, function)
    finally:
        runtime.is_surviving = False


def _survived(runtime: Runtime, function: Callable[[], T]) -> T:
    number = runtime.survived_calls
    while True:
        results: list[T] = []
        try:
            results.append(function())
            core.barrier(runtime.context)
            break
        except RankLostError:
            if not runtime.context.shrinks_on_failure:
                raise
        shrink()
        if runtime.furthest_survived_call > number and results:
            break  # nobody ends it before all have a result
    runtime.survived_calls = number + 1
    return results[0]


def survived_step(step: Callable[[], Any], windows_of: core.Context | None = None) -> Any:
    """`step()` of an optimizer; where a rank is lost in it, what it has returned so far.

    windows_of: the ranks whose windows the step uses, which tell of a rank's end by themselves.
    """
    context = windows_of or current().context
    try:
        return step()
    except PeerFailure as error:
        if not context.shrinks_on_failure or not (
                isinstance(error, RankLostError)
                or (windows_of is not None and _hears_of_loss(context))):
            raise
        loss = getattr(error, "result", None)
    shrink()
    return loss


def _hears_of_loss(context: core.Context) -> bool:
    """Whether a rank is lost: a window may tell of its end before the context hears of it."""
    end = time.monotonic() + 1
    while not context.is_revoked():
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def _take_along(runtime: Runtime) -> None:
    """Moves all that stands on the ranks to those that are left."""
    context = runtime.context
    optimizers = {each.number: each for each in runtime.optimizers_in_order()
                  if not each.has_ended}
    samplers = {each.number: each for each in runtime.samplers}
    states = [json.loads(each) for each in core.gather_bytes(context, "shrink", json.dumps({
        "survived": runtime.survived_calls, "optimizers": list(optimizers),
        "samplers": list(samplers)}).encode())]
    runtime.furthest_survived_call = max(each["survived"] for each in states)
    # One that a rank had not made yet, or has let go, is not everybody's.
    common = [set.intersection(*(set(each[what]) for each in states))
              for what in ("optimizers", "samplers")]
    for number, optimizer in optimizers.items():
        if number not in common[0]:
            optimizer.end_where_lost("not all of the others have it")
        else:
            _move(runtime, optimizer)
    for number in sorted(common[1]):
        samplers[number].deal_anew()
    if context.rank == 0:
        epoch, ranks, lost = context.membership
        without = ", ".join(f"rank {rank} ({cause})" for rank, since, cause in lost
                            if since == epoch)
        context.log_warning(f"shrink: {len(ranks)} rank{'s go' if len(ranks) > 1 else ' goes'} on "
                            f"without {without or 'any other one'}")


def _move(runtime: Runtime, optimizer: Any) -> None:
    context = runtime.context
    forgotten = forget_ranks(optimizer.wrapped)
    if forgotten and context.rank == 0:
        context.log_warning(f"shrink: {', '.join(forgotten)} of an optimizer named the ranks that "
                            "were, and are not set any more")
    furthest = optimizer.move_to(context.duplicate())
    if furthest is not None:
        take_over_state("shrink", optimizer.wrapped, furthest)
    if optimizer.make_windows is not None:
        optimizer.make_windows()
