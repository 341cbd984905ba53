"""What ranks remember of the group that they have left."""

from typing import Any, NamedTuple


class FormerGroup(NamedTuple):
    """The group that ranks have left, of which others are formed until all that stands on it has
    moved."""

    ranks: list[int]
    """Their numbers in the launch."""
    topology: Any
    machine_topology: Any
    """The graph of machines, if one was set."""
    machine_of_ranks: list[int]
