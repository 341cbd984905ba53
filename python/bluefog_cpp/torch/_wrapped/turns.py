"""The turns of a program's loop, in which several optimizers may step."""

import itertools
from collections.abc import Iterator

LONGEST = 64
"""The most steps of a turn."""


class Turns:
    """Which step is the last one of a turn of a program's loop: ranks that are new begin with the
    next one. A turn goes from the first step of the optimizer that stepped first to its next one
    after another optimizer's. Its end is known before that once two turns have been alike."""

    def __init__(self) -> None:
        self._turn: list[int] = []
        """The optimizers of this turn's steps until now."""
        self._before: list[int] = []
        self._are_alike = False

    def note(self, number: int) -> bool:
        """A step of the optimizer of that number ends. Returns whether it ends a turn."""
        turn = self._turn
        if turn and number == turn[0] != turn[-1]:
            self._are_alike = turn == self._before
            self._before, self._turn = turn, [number]
        else:
            turn.append(number)
        is_alone = len(set(self._turn)) == 1
        if len(self._turn) > LONGEST:
            self._are_alike = False
            if is_alone:
                self._turn.pop()
            elif len(set(self._turn[:-1])) == 1:  # another one has come
                self._turn = [self._turn[0], number]
            else:  # the first one is not used any more
                self._turn = [number]
        if is_alone and len(self._turn) == LONGEST:
            return True
        return self._are_alike and self._turn == self._before

    def last(self) -> int | None:
        """The optimizer of the last step of turns, where that is known."""
        return self._before[-1] if self._are_alike else None

    def to_come(self) -> Iterator[int] | None:
        """The optimizers of the steps to come, in their order; None where it is not known."""
        turn, before = self._turn, self._before
        if before and before[:len(turn)] == turn:
            return itertools.chain(before[len(turn):], itertools.cycle(before))
        is_alone = not before and len(set(turn)) == 1
        return itertools.cycle(turn[:1]) if is_alone else None
