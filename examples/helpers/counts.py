"""Numbers of the command line that have bounds."""

import argparse
import math

# Beyond it float32, in which models are computed, soon knows infinity alone.
LARGEST = 1e38


def at_least(least, kind=int):
    """A type for argparse: a `kind` that is `least` or more."""
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not value >= least:
            raise argparse.ArgumentTypeError(f"expected a number of {least} or more, found {text}")
        return value
    return parse


def between(low, high=LARGEST, includes_low=True):
    """A type for argparse: a finite number from `low` to `high`."""
    def parse(text):
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (low <= value if includes_low else low < value) or value > high:
            words = "at least" if includes_low else "more than"
            raise argparse.ArgumentTypeError(
                f"expected a number of {words} {low:g} and at most {high:g}, found {text}"
            )
        return value
    return parse


rate = between(0, includes_low=False)
