"""Activities of the user's own in the timeline (`BLUEFOG_TIMELINE`)."""

import contextlib
from typing import Iterator

from bluefog_cpp.torch._runtime import current


def timeline_start_activity(tensor_name: str, activity_name: str) -> bool:
    """Starts an activity in the row of `tensor_name`. False when no timeline is written."""
    return current().context.timeline_begin(tensor_name, activity_name)


def timeline_end_activity(tensor_name: str) -> bool:
    """Ends what was started last in that row."""
    return current().context.timeline_end(tensor_name)


@contextlib.contextmanager
def timeline_context(tensor_name: str, activity_name: str) -> Iterator[None]:
    """An activity that lasts as long as the block."""
    timeline_start_activity(tensor_name, activity_name)
    try:
        yield
    finally:
        timeline_end_activity(tensor_name)
