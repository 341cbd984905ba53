"""Neighbours whose values came late."""

from typing import NamedTuple


class LateRank(NamedTuple):
    """A neighbour whose values came late, counted since the optimizer was wrapped, or since ranks
    were lost or joined."""

    rank: int
    """The neighbour, one that this rank hears."""
    rounds: int
    """Rounds of this rank in which its value of that round was missing."""
    rounds_without: int
    """Those of them that averaged without it."""
    oldest: int
    """The greatest age of a value that was averaged, in rounds."""
