"""Parts of a program besides its model and optimizers that ranks which join take over."""

import weakref
from typing import Any


class HandedState:
    """The objects of a program whose state they take, and when."""

    def __init__(self) -> None:
        self._owners: list[weakref.ref[Any]] = []
        self.is_due = False
        """Whether the next step begins with a hand-over: what the others do behind the step of the
        meeting, as `scheduler.step()`, the newcomers do not."""
        self.takes = False
        """Whether this rank has joined last."""

    def add(self, owner: Any) -> None:
        if all(each is not owner for each in self.owners()):
            self._owners.append(weakref.ref(owner))

    def owners(self) -> list[Any]:
        """Those that are alive, in the order in which they were added."""
        return [owner for each in self._owners if (owner := each()) is not None]

    def names(self) -> list[str]:
        return [type(owner).__name__ for owner in self.owners()]

    def note_meeting(self, is_due: bool, newcomers: int, joins: bool) -> None:
        """Ranks have met, `newcomers` of them new, and this one if it `joins`."""
        self.is_due = is_due
        if newcomers:
            self.takes = joins
