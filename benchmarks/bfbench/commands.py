"""bfbench: this project, its peers and the machine's limits, side by side."""

import argparse
import contextlib
import signal
import sys

from bfbench import INTERRUPTED, converge, ddp, diff, operations, scale, syncbn, train
from bfbench.diff import NothingToCompare
from bfbench.launch import LaunchFailed

COMMANDS = {"ops": operations, "train": train, "ddp": ddp, "syncbn": syncbn, "converge": converge,
            "scale": scale, "diff": diff}


@contextlib.contextmanager
def sigterm_as_ctrl_c():
    """So what was measured is shown and written."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main(words=None):
    parser = argparse.ArgumentParser(prog="bfbench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in COMMANDS.items():
        about = module.__doc__.split(": ", 1)[1]
        command = commands.add_parser(name, help=about, description=about)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    words = sys.argv[1:] if words is None else words
    args = parser.parse_args(words, argparse.Namespace(words=words))
    try:
        with sigterm_as_ctrl_c():
            return args.run(args) or 0
    except (LaunchFailed, NothingToCompare) as error:
        print(f"bfbench {args.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
