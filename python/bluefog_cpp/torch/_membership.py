"""Going on without ranks that are lost, and with ranks that join.

With `BLUEFOG_ON_FAILURE=shrink`, which `bfrun --min-np` sets, the end of one rank is no end of
the others: their calls raise RankLostError, `shrink` makes the group of those that are left, and
wrapped optimizers call it by themselves. They take in processes that wait to join, too.
"""

import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from bluefog_cpp import _arguments
from bluefog_cpp._arguments import checked
from bluefog_cpp._extension import core
from bluefog_cpp.errors import (
    Error,
    PeerFailure,
    RankLostError,
    StateError,
    TimeoutError,
)
from bluefog_cpp.torch._parameters import take_over_state
from bluefog_cpp.torch._runtime import Runtime, current, has_been_left, leave_now, stop
from bluefog_cpp.torch._wrapped.handing_over import hand_over
from bluefog_cpp.torch._wrapped.meeting import (
    check_alike,
    clock_of,
    described_group,
    graphs_of,
    paces_another,
    statement_of,
    take_graphs,
)
from bluefog_cpp.torch._wrapped.model_parts import buffers_of
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
    time: float
    """When the others wrote down that they go on, in seconds since 1970, by the clock of one."""
    step: int
    """The first step of wrapped optimizers without it, 0 where it was lost before one was wrapped;
    -1 where there are none, or ranks make as many steps as they like."""


class Entry(NamedTuple):
    """A rank that was not there at the start."""

    rank: int
    """Its number: the next one that nobody had had."""
    epoch: int
    """The first one with it."""


class Membership(NamedTuple):
    """The ranks that take part, by their numbers in the launch."""

    epoch: int
    """How often ranks have gone on without others, or with new ones."""
    ranks: list[int]
    """The number in the launch of rank 0, 1, … of now."""
    lost: list[Loss]
    """The ranks that were lost, by epoch."""
    joined: list[Entry]
    """The ranks that have joined, by epoch; also those that were lost later."""


def membership() -> Membership:
    """Who takes part, who was lost, and who has joined. Local."""
    epoch, ranks, lost, joined = current().context.membership
    return Membership(epoch, ranks, [Loss(*loss) for loss in lost],
                      [Entry(*entry) for entry in joined])


def on_shrink(callback: Callable[[], None]) -> Callable[[], None]:
    """Has `callback()` called on every rank, each time that ranks have gone on without others or
    with new ones: once `rank()` and `size()` are new and wrapped optimizers have moved. It may
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
    new number; another one goes on without the lost ranks (`MixingMatrix.without`). Wrapped
    optimizers go on from the same step: ranks that were behind pass over the steps up to it,
    parameters become their mean over the ranks (with gradient all-reduce those of the rank that was
    furthest, with the optimizer's state), and corrections begin anew. Calls in flight raise
    RankLostError where they are waited for; where no rank is lost, others have a second to end
    theirs. Windows of the program are gone: make them anew. The graph of the machines goes on with
    the weights by which ranks get what it gives them without the lost ones.

    Ranks that have ended, left, or whose host is lost are not waited for; others for
    BLUEFOG_TIMEOUT, or a tenth of it where calls have waited for them until then; after it they are
    left out, and get StateError where they come later. Returns who takes part. Raises
    UnsupportedError where MPI has started the ranks.
    """
    return _go_on(admits=False)


def enter() -> Membership:
    """On a process that asks to join ranks that run (`bfrun --respawn`, BLUEFOG_JOIN, `bf.init(
    join=True)`): returns once they have taken it in. Elsewhere it does nothing. It stands in a
    program where training begins, behind all that is made for it:

        bf.init()
        model, optimizer, sampler = …      # wrapped; alone, calls between ranks do nothing
        bf.enter()
        for epoch in range(sampler.epoch, epochs):

    The process is rank 0 of 1 until then, also where a script asks `if bf.rank() == 0`
    (`waits_to_join` tells). Between `enter` and the first step no call between ranks may stand: the
    others do not make it. The others train on, and meet at the end of a step that
    they have agreed on, some ahead. From it on this process has the mean of their parameters, the
    buffers, the optimizer's state and learning rates of one of them, the step count, and its share
    of what is left of the epoch (`ElasticSampler`). It has the last rank, and a number that nobody
    had had (`Membership.ranks`). The others keep what they have, but for parameters, which become
    their mean. What a program has besides (schedulers, counters) it may send in `on_shrink`: rank 0
    is never a new one. Graphs that were set begin anew, as for any new number of ranks.

    Returns who takes part. Raises StateError where the ranks turn this process away, or have left;
    MismatchError where its optimizers are others than theirs: they go on without it.
    """
    return _go_on(admits=True) if current().context.is_applicant else membership()


def leave() -> None:
    """Local. This rank wants to leave the others, as where its host is to be taken away: with
    `BLUEFOG_ON_FAILURE=shrink` it does so at the end of one of its optimizer's steps to come, a few
    ahead, which all ranks end. Parameters become the mean of all ranks there, this one's included;
    it is shut down then (`has_left`), and the others go on as without a lost rank, with nothing
    interrupted. May be called from a signal's handler:

        signal.signal(signal.SIGTERM, lambda *_: bf.leave())
        for batch in loader:
            …
            optimizer.step()
            if bf.has_left():
                break

    It does nothing once this rank has left. Raises StateError where the ranks are to end with the
    first that is lost, and in a process that waits to join.
    """
    if has_been_left():  # a signal that comes twice
        return
    runtime = current()
    if not runtime.context.shrinks_on_failure or runtime.context.is_applicant:
        found = ("a process that waits to join" if runtime.context.is_applicant else
                 "BLUEFOG_ON_FAILURE=raise")
        raise StateError(f"rank {runtime.rank}, leave: expected a rank of "
                         f"BLUEFOG_ON_FAILURE=shrink, whose others go on, found {found}")
    runtime.leaves = True


def has_left() -> bool:
    """Whether this rank has left by `leave`. Local."""
    return has_been_left()


def waits_to_join() -> bool:
    """Whether this process waits to join ranks that run, and is alone until `enter`. Local."""
    return current().context.is_applicant


def _go_on(admits: bool) -> Membership:
    runtime = current()
    runtime.has_asked_to_leave = False
    runtime.is_new = runtime.is_new or runtime.context.is_applicant
    while True:
        try:
            runtime.newcomers = 0
            runtime.move_to(runtime.context.regroup() if admits else runtime.context.shrink())
            _take_along(runtime)
            runtime.settle()
        except RankLostError:  # another one
            continue
        except Error as error:
            if runtime.is_new:
                stop()  # the others go on without it
                raise
            if not runtime.newcomers:
                raise
            if runtime.rank == 0:
                runtime.context.log_warning(
                    f"a process that was to join is not like the others: {error}")
            continue
        runtime.is_new = False
        try:
            for callback in list(runtime.when_shrunk):
                callback()
            return membership()
        except RankLostError:
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
        except PeerFailure as error:
            if not _is_of_loss(runtime.context, error):
                raise
        runtime.result_of = number if results else -1
        try:
            shrink()
        finally:
            runtime.result_of = -1
        if results and (runtime.furthest_survived_call > number
                        or all(each == number for each in runtime.results_of)):
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
    except (PeerFailure, TimeoutError) as error:
        is_late = windows_of is not None and isinstance(error, TimeoutError)
        if not (is_late and context.shrinks_on_failure) and not _is_of_loss(context, error):
            raise
        loss = getattr(error, "result", None)
        if isinstance(error, RankLostError):
            current().context.expect_late(error.rank)
    shrink()
    return loss


def _is_of_loss(context: core.Context, error: Exception) -> bool:
    """Whether the others go on without a rank. Its end may come behind the error: calls on windows
    are not revoked, and a rank whose step fails says so before it ends."""
    if not context.shrinks_on_failure or not isinstance(error, PeerFailure):
        return False
    if isinstance(error, RankLostError):
        return True
    end = time.monotonic() + 1
    while not context.is_revoked() and not context.is_gone(error.rank):
        if time.monotonic() > end:
            return False
        time.sleep(0.001)
    return True


def _take_along(runtime: Runtime) -> None:
    """Moves all that stands on the ranks to those that are left, and to those that are new."""
    context, joins = runtime.context, runtime.is_new
    optimizers = {each.number: each for each in runtime.optimizers_in_order()
                  if not each.has_ended}
    samplers = {each.number: each for each in sorted(runtime.samplers,
                                                     key=lambda each: each.number)}
    runtime.move_machines()
    states = [json.loads(each) for each in core.gather_bytes(context, "shrink", json.dumps({
        "survived": runtime.survived_calls, "optimizers": list(optimizers),
        "samplers": list(samplers), "is_new": joins,
        "result_of": runtime.result_of,
        "hands_over": runtime.handed.is_due, "handed": runtime.handed.names(),
        "graphs": graphs_of(runtime)}).encode())]
    is_new = [each["is_new"] for each in states]
    old = [each for each in states if not each["is_new"]]
    newcomers = runtime.newcomers = len(states) - len(old)
    if not old:
        raise StateError(f"rank {runtime.rank}, enter: expected a rank that was there before, "
                         "found that all of them are lost, with all that they had")
    first = states.index(old[0])
    take_graphs(runtime, first, old[0]["graphs"])
    runtime.furthest_survived_call = max(each["survived"] for each in old)
    runtime.results_of = [each["result_of"] for each in old]
    # One that a rank had not made yet, or has let go, is not everybody's.
    common = {what: set.intersection(*(set(each[what]) for each in old))
              for what in ("optimizers", "samplers")}
    if newcomers:
        made = [json.loads(each) for each in core.gather_bytes(context, "shrink", json.dumps(
            statement_of(optimizers.values(), samplers.values())).encode())]
        for place, state in enumerate(states):
            if state["is_new"]:
                check_alike(runtime, place, state, common, old[0]["handed"],
                            (made[place], made[first]))
    if joins:  # it has made them in the same order, and may have others of the same number
        runtime.survived_calls = runtime.furthest_survived_call
        common = {"optimizers": set(optimizers), "samplers": set(samplers)}
    for number, optimizer in optimizers.items():
        if number not in common["optimizers"]:
            optimizer.end_where_lost("not all of the others have it")
        else:
            _move(runtime, optimizer, newcomers, joins)
    waiting = [each for number, each in optimizers.items() if number in common["optimizers"]
               and each.windows_of is None and each.algorithm != "none"]
    is_due = newcomers > 0 or any(each["hands_over"] for each in states)
    runtime.handed.note_meeting(is_due and bool(waiting), newcomers, joins)
    if newcomers:
        hand_over(runtime, [optimizers[number] for number in sorted(common["optimizers"])])
    if waiting:
        context.note_first_step(max(each.core.step_count for each in waiting))
    for number in sorted(common["samplers"]):
        samplers[number].deal_anew(is_new)
    if context.rank == 0:
        context.log_warning(f"shrink: {described_group(context, is_new)}")


def _move(runtime: Runtime, optimizer: Any, newcomers: int, joins: bool) -> None:
    context = runtime.context
    forgotten = forget_ranks(optimizer.wrapped)
    if forgotten and context.rank == 0:
        context.log_warning(f"shrink: {', '.join(forgotten)} of an optimizer named the ranks that "
                            "were, and are not set any more")
    furthest = optimizer.move_to(context.duplicate(), joins)
    if optimizer.sums_gradients:
        take_over_state("shrink", optimizer.wrapped, furthest)
    elif newcomers:
        take_over_state("shrink", optimizer.wrapped, furthest, keeps=not joins)
    if newcomers:
        core.broadcast_tensors(context, [(name, buffer if joins else buffer.detach().clone())
                                         for name, buffer in buffers_of(optimizer.models)],
                               furthest, "shrink")
    if optimizer.make_windows is not None:
        optimizer.make_windows()


def meet_if_due(optimizer: Any) -> None:
    """At the end of a step: takes in processes that wait to join, and sees off ranks that leave,
    where ranks have agreed on it."""
    runtime = current()
    if not runtime.shrinks or optimizer.has_ended:
        return
    count = len(runtime.optimizers)
    if count > 1:
        count = sum(not each.has_ended for each in runtime.optimizers)
    ends_turn = count == 1 or runtime.turns.note(optimizer.number)
    clock = clock_of(runtime, optimizer) if count > 1 else optimizer
    if not ends_turn and paces_another(runtime, optimizer):
        return
    if runtime.leaves and not runtime.has_asked_to_leave and ends_turn:
        runtime.has_asked_to_leave = True
        clock.core.ask_to_leave()
    if not clock.core.meeting_is_due(ends_turn):
        return
    is_departure = clock.core.is_departure()
    survived_step(lambda: _end_all(is_departure))
    if not clock.core.meeting_is_due(False):
        return  # a rank was lost meanwhile
    if runtime.leaves and is_departure:  # else others meet for another reason, and it leaves next
        leave_now()
    else:
        _go_on(admits=True)


def _end_all(is_departure: bool) -> None:
    for each in current().optimizers_in_order():
        if not each.has_ended:
            each.drain()
            if is_departure:
                each.average_windows("leave")
                each.core.share_before_departure()
