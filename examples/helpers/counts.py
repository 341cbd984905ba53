"""Numbers of the command line that have a least value."""

import argparse


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
