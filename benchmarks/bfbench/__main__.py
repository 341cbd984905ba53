"""bfbench: this project, its peers and the machine's limits, side by side."""

import argparse
import sys

from bfbench import operations
from bfbench.launch import LaunchFailed


def main(words=None):
    parser = argparse.ArgumentParser(prog="bfbench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    ops = commands.add_parser("ops", help=operations.__doc__)
    operations.add_arguments(ops)
    ops.set_defaults(run=operations.run)
    args = parser.parse_args(words)
    try:
        args.run(args)
    except LaunchFailed as error:
        print(f"bfbench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
