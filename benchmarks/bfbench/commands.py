"""bfbench: this project, its peers and the machine's limits, side by side."""

import argparse
import sys

from bfbench import INTERRUPTED, converge, ddp, diff, operations, scale, syncbn, train
from bfbench.diff import NothingToCompare
from bfbench.launch import LaunchFailed

COMMANDS = {"ops": operations, "train": train, "ddp": ddp, "syncbn": syncbn, "converge": converge,
            "scale": scale, "diff": diff}


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
        return args.run(args) or 0
    except (LaunchFailed, NothingToCompare) as error:
        print(f"bfbench {args.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
