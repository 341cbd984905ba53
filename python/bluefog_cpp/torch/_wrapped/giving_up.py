"""The end of a rank whose program cannot go on: it leaves the others in good order."""

import sys
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from bluefog_cpp import _arguments, _exit_note
from bluefog_cpp._arguments import checked
from bluefog_cpp._extension import core
from bluefog_cpp.errors import Error
from bluefog_cpp.torch._membership import meet_if_due
from bluefog_cpp.torch._runtime import Runtime, current, has_been_left, is_initialized, stop
from bluefog_cpp.torch._wrapped.steering import ranks_named

LONGEST_S = 600.0
"""How long it takes part in the others' steps where BLUEFOG_TIMEOUT is never."""
LONGEST_OVER_WINDOWS_S = 30.0
"""Likewise where its steps wait for nobody: others that wait in another call hear of it then."""
LONGEST_REASON = 200
BETWEEN_STEPS_S = 0.001
"""Between steps in which nobody waits for others."""

_hook_before: Any = None


def give_up(reason: str) -> bool:
    """Local. This rank's program cannot go on, as after an exception, or with a loss that is not
    finite: it leaves the others in good order (`leave`), and is shut down. Returns whether it has;
    else it is lost to them, as one whose process has ended. In both cases `membership().lost` of
    the others has the reason.

    Until it has left, a few steps on, it takes part in the steps of the others, which find nothing
    interrupted: with its values, but without local steps of its own, and with zeros for gradients.
    It is lost where they make another call that needs it, where its last `step` has failed (by an
    error of a closure, say, which interrupts the others' step too), where a parameter, or what an
    algorithm carries, is not finite (such values are kept from the others; but adapt-with-combine
    may have published them in the step before: look at the loss, or at gradients, before `step`),
    where its steps cannot be made without the program (`dst_weights` and the like are set, or LBFGS
    averages gradients), and after BLUEFOG_TIMEOUT.

    An exception that ends the script does this by itself (`sys.excepthook`), unless it is one of
    this package (PeerFailure, MismatchError, …), after which ranks could only wait, or no
    `Exception`. For programs that catch theirs:

        try:
            train()
        except Exception as error:
            bf.give_up(str(error))
            raise SystemExit(1)

    Without `BLUEFOG_ON_FAILURE=shrink`, and on a single rank, it does nothing but `shutdown`.
    Raises ArgumentTypeError for a reason that is no text.
    """
    checked("give_up", "reason", _arguments.text, reason)
    if has_been_left():
        return True
    runtime = current()
    context = runtime.context
    if not runtime.shrinks or context.is_applicant or runtime.size == 1:
        stop()
        return False
    reason = _arguments.utf8(_shortened(" ".join(reason.split())) or "no reason is given")
    context.log_warning(f"give_up: this rank cannot go on: {reason}; the others go on without it")
    problem = ""
    try:
        problem = _leave(runtime, reason)
    except Exception as error:  # the others go on all the same
        problem = " ".join(str(error).split())
    if has_been_left():
        return True
    context.log_warning(f"give_up: this rank leaves at once, and is lost to the others: {problem}")
    _exit_note.leave()
    stop()
    return False


def _shortened(reason: str) -> str:
    """Its begin, with the error's class, and its end: errors of a data loader's worker have theirs
    behind a traceback."""
    if len(reason) <= LONGEST_REASON:
        return reason
    begin = LONGEST_REASON // 3
    return f"{reason[:begin]} ... {reason[begin + 5 - LONGEST_REASON:]}"


def _leave(runtime: Runtime, reason: str) -> str:
    """Takes part in the others' steps until this rank has left. Returns why it has not."""
    runtime.context.give_up(reason)
    optimizers = {each.number: each for each in runtime.optimizers_in_order()
                  if not each.has_ended}
    if not optimizers:
        return "it has no optimizer whose steps it could make"
    if any(each.is_in_step for each in optimizers.values()):
        return "a step of it has failed, and with it that of the others"
    order = _steps_to_come(runtime, list(optimizers))
    if order is None:
        return "the order of its optimizers' steps is not known"
    for optimizer in optimizers.values():
        obstacle = _why_not_without_program(optimizer)
        if obstacle:
            return f"its steps go by {obstacle}"
    are_finite = [_begin(optimizer, reason) for optimizer in optimizers.values()]
    if not all(are_finite):
        return "its values are kept from them, since not all are finite"
    longest = core.settings_timeout() or LONGEST_S
    if any(each.windows_of is not None for each in optimizers.values()):
        longest = min(longest, LONGEST_OVER_WINDOWS_S)
    if all(each.windows_of is not runtime.context for each in optimizers.values()):
        runtime.context.close()  # others that wait in another call find that it will not come
    runtime.leaves = True
    end = time.monotonic() + longest
    for number in order:
        if time.monotonic() > end:
            break
        _step(optimizers[number])
        if has_been_left():
            return ""
    return "they have not met in time"


def _steps_to_come(runtime: Runtime, numbers: list[int]) -> Iterator[int] | None:
    if len(numbers) == 1:
        return iter(lambda: numbers[0], None)
    return runtime.turns.to_come()


def _why_not_without_program(optimizer: Any) -> str:
    """Why its steps cannot be made without this rank's program; empty where they can."""
    named = ranks_named(optimizer.wrapped)
    if named:
        return f"{named[0]} of an optimizer, which the program sets"
    if optimizer._reevaluates and optimizer.sums_gradients:
        return "gradients that are averaged in each evaluation of a closure"
    return ""


def _begin(optimizer: Any, reason: str) -> bool:
    """From here on steps make no local ones. Returns whether all values are finite."""
    optimizer._needs_closure = False
    return bool(optimizer.core.begin_to_give_up(reason))


def _step(optimizer: Any) -> None:
    for group in optimizer.wrapped.param_groups:
        for parameter in group["params"]:
            parameter.grad = None  # the mean of the step before is no gradient
    if optimizer.windows_of is not None or optimizer.averages_over_nobody:
        time.sleep(BETWEEN_STEPS_S)
    if optimizer.skips_steps and optimizer.core.step_count % optimizer.period == 0:
        optimizer.core.skip_steps(optimizer.period - 1)
    optimizer.step(None, optimizer.wrapped._before_round)
    meet_if_due(optimizer)


def watch() -> None:
    """Has this rank give up where an exception ends the script."""
    global _hook_before
    if _hook_before is None:
        _hook_before, sys.excepthook = sys.excepthook, _on_failure


def _on_failure(kind: type[BaseException], error: BaseException,
                trace: TracebackType | None) -> None:
    _hook_before(kind, error, trace)
    is_own = isinstance(error, Exception) and not isinstance(error, Error)
    if is_own and is_initialized() and current().shrinks:
        give_up(f"{kind.__name__}: {error}")
