"""The way of what a wrapped optimizer has beside torch's state through `get_state_dict` and
`set_state_dict` of torch.distributed.checkpoint: they know of states of parameters and of groups
alone, so that it travels in the first group."""

import sys
from types import FrameType
from typing import Any

from bluefog_cpp.torch._wrapped.carried_state import CARRIED


def caller_in_torch(name: str) -> FrameType | None:
    """The frame of torch.distributed's function of that name which has called, behind any number of
    others' wrappers; None where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if (frame.f_code.co_name == name
                and frame.f_globals.get("__name__", "").startswith("torch.distributed.")):
            return frame
        frame = frame.f_back
    return None


def with_carried(state: dict[str, Any], carried: dict[str, Any] | None) -> dict[str, Any]:
    """`state_dict` of the wrapped optimizer, for whoever calls. Flattened states have groups by
    parameter, and read none but torch's own keys again: they go without."""
    caller = caller_in_torch("_get_optim_state_dict")
    if caller is None:
        return state if carried is None else {**state, CARRIED: carried}
    info = caller.f_locals.get("info")
    if carried is None or not state["param_groups"] or getattr(
            info, "flatten_optimizer_state_dict", False):
        return state
    first, *others = state["param_groups"]
    return {**state, "param_groups": [{**first, CARRIED: carried}, *others]}


def taken_from(state: Any) -> tuple[Any, Any]:
    """The state without it, and what `with_carried` has put into it; None where there is none."""
    if not isinstance(state, dict):
        return state, None
    groups = state.get("param_groups")
    if CARRIED in state or not isinstance(groups, (list, tuple)):
        return state, state.get(CARRIED)
    found = [group[CARRIED] for group in groups if isinstance(group, dict) and CARRIED in group]
    if not found:
        return state, None
    plain = [{key: value for key, value in group.items() if key != CARRIED} for group in groups]
    return {**state, "param_groups": plain}, found[0]
