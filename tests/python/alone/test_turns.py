"""Turns of a program's loop, and the words of a rank that gives up."""

import itertools

import pytest

from bluefog_cpp.torch._wrapped import giving_up
from bluefog_cpp.torch._wrapped.turns import LONGEST, Turns


def ends(turns: Turns, loop: str) -> str:
    """The steps of one turn that end it."""
    return "".join(each for each in loop if turns.note(ord(each)))


@pytest.mark.parametrize(("loop", "last"), [("ab", "b"), ("ba", "a"), ("dddg", "g"), ("gddd", "d"),
                                            ("abcdef", "f")])
def test_the_last_step_of_a_turn(loop, last):
    turns = Turns()
    assert [ends(turns, loop) for _ in range(2)] == ["", ""]  # not before it is sure
    assert [ends(turns, loop) for _ in range(50)] == [last] * 50
    assert ends(turns, loop[0] + loop) == ""  # another turn than before
    assert [ends(turns, loop) for _ in range(4)][-1] == last


def test_one_that_is_no_longer_used_does_not_count():
    turns = Turns()
    for _ in range(30):
        turns.note(1)
    for _ in range(3 * LONGEST):
        turns.note(2)
    assert all(turns.note(2) for _ in range(5))
    # It comes back.
    for _ in range(3):
        ends(turns, "\x02\x01")
    assert ends(turns, "\x02\x01") == "\x01"


def to_come(*numbers):
    turns = Turns()
    for number in numbers:
        turns.note(number)
    order = turns.to_come()
    return None if order is None else list(itertools.islice(order, 5))


def test_the_steps_to_come_go_on_as_the_turn_before():
    assert to_come(0, 1, 0, 1, 0) == [1, 0, 1, 0, 1]
    assert to_come(0, 1, 0, 1, 0, 1) == [0, 1, 0, 1, 0]
    assert to_come(0, 0, 1, 0, 0) == [1, 0, 0, 1, 0]
    assert to_come(2, 2) == [2, 2, 2, 2, 2]


def test_they_are_not_known_before_a_turn_has_ended_or_in_one_that_is_another():
    assert to_come() is None
    assert to_come(0, 1) is None
    assert to_come(0, 1, 2, 0, 2) is None


def test_the_last_optimizer_is_known_once_turns_are_alike():
    turns = Turns()
    found = []
    for number in (0, 1, 2, 0, 1, 2, 0, 1, 2):
        turns.note(number)
        found.append(turns.last())
    assert found == 6 * [None] + 3 * [2]
    for number in (0, 2, 0):  # a turn that is another
        turns.note(number)
    assert turns.last() is None


def test_long_reasons_keep_their_begin_and_their_end():
    assert giving_up._shortened("ValueError: short") == "ValueError: short"
    found = giving_up._shortened("RuntimeError: in a worker " + 500 * "x" + " KeyError: 'label'")
    assert len(found) == giving_up.LONGEST_REASON
    assert found.startswith("RuntimeError: in a worker x") and " ... " in found
    assert found.endswith("x KeyError: 'label'")
