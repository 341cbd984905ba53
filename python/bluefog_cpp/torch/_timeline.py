"""Activities of the user's own in the timeline (`BLUEFOG_TIMELINE`), in rows of tensors' names.

All raise NotInitialized before `init`, and ArgumentTypeError for names that are no text.
"""

import contextlib
from collections.abc import Iterator

from bluefog_cpp import _arguments
from bluefog_cpp._arguments import checked
from bluefog_cpp.errors import StateError
from bluefog_cpp.torch._runtime import Runtime, current


def timeline_start_activity(tensor_name: str, activity_name: str) -> bool:
    """Starts an activity in the row of `tensor_name`, inside those that run there. False when no
    timeline is written."""
    return _start(current(), "timeline_start_activity", tensor_name, activity_name)


def _start(runtime: Runtime, call: str, tensor_name: str, activity_name: str) -> bool:
    checked(call, "tensor_name", _arguments.text, tensor_name)
    checked(call, "activity_name", _arguments.text, activity_name)
    is_written = runtime.context.timeline_begin(tensor_name, activity_name)
    runtime.activities[tensor_name] = runtime.activities.get(tensor_name, 0) + 1
    return is_written


def timeline_end_activity(tensor_name: str) -> bool:
    """Ends what was started last in that row. False when no timeline is written.

    Raises StateError where nothing was started there that has not ended yet, with a timeline or
    without.
    """
    runtime = current()
    checked("timeline_end_activity", "tensor_name", _arguments.text, tensor_name)
    return _end(runtime, tensor_name)


@contextlib.contextmanager
def timeline_context(tensor_name: str, activity_name: str) -> Iterator[None]:
    """An activity that lasts as long as the block."""
    runtime = current()
    _start(runtime, "timeline_context", tensor_name, activity_name)
    try:
        yield
    finally:
        _end(runtime, tensor_name)


def _end(runtime: Runtime, tensor_name: str) -> bool:
    running = runtime.activities.get(tensor_name, 0)
    if running == 0:
        others = ", ".join(f"'{name}'" for name in sorted(runtime.activities))
        raise StateError(
            f"rank {runtime.rank}, timeline_end_activity: expected an activity that runs in the "
            f"row of tensor '{tensor_name}', found none (those that run: {others or 'none'})")
    if running == 1:
        del runtime.activities[tensor_name]
    else:
        runtime.activities[tensor_name] = running - 1
    return runtime.context.timeline_end(tensor_name)
