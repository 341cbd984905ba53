"""bfbench: this project, its peers and the machine's limits, side by side."""

import argparse
import contextlib
import errno
import os
import pathlib
import signal
import sys

from bfbench import (
    INTERRUPTED,
    converge,
    ddp,
    diff,
    operations,
    pipelines,
    scale,
    syncbn,
    train,
    uneven,
)
from bfbench.algorithms import load_files
from bfbench.diff import NothingToCompare
from bfbench.launch import LaunchFailed
from bfbench.options import DEFAULT_BUILD
from bfbench.traffic import command as traffic

COMMANDS = {"ops": operations, "train": train, "ddp": ddp, "syncbn": syncbn, "converge": converge,
            "traffic": traffic, "scale": scale, "uneven": uneven, "pipeline": pipelines,
            "diff": diff}

DEFAULT_COMMAND = "ops"
# Reasons for which standard output takes no more, of errors that name no file.
LOST_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EBADF, errno.EPIPE, errno.EIO)


@contextlib.contextmanager
def sigterm_as_ctrl_c():
    """So what was measured is shown and written."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def with_command(words):
    """The words with their command: `ops` where they name none."""
    names_one = words and (not words[0].startswith("-")
                           or words[0] in ("-h", "--help", "--version"))
    return words if names_one else [DEFAULT_COMMAND, *words]


def use_package_of(words):
    """Python finds the package of the build that is measured first, as the ranks do."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--build", type=pathlib.Path, default=DEFAULT_BUILD)
    with contextlib.suppress(argparse.ArgumentError):  # which the command's own parser says
        folder = parser.parse_known_args(words)[0].build / "python"
        if folder.is_dir() and str(folder) not in sys.path:
            sys.path.insert(0, str(folder))


def load_files_of(words):
    """Registers what the files of --load bring along, before names are looked up."""
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--load", action="append", default=[])
    found = []
    with contextlib.suppress(argparse.ArgumentError):  # which the command's own parser says
        found = parser.parse_known_args(words)[0].load
    load_files(found)


def end_output():
    """Raises OSError where what was printed is lost."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    sys.stdout.flush()


class Version(argparse.Action):
    """The version of the package that is measured, as the project's other commands say theirs."""

    def __init__(self, option_strings, dest):
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS,
                         help="print the version of bluefog_cpp and end")

    def __call__(self, parser, namespace, values, option_string=None):
        from bluefog_cpp import __version__
        print(f"bfbench {__version__}")
        parser.exit()


def main(words=None):
    parser = argparse.ArgumentParser(prog="bfbench", description=__doc__,
                                     epilog=f"Without a command: {DEFAULT_COMMAND}.")
    parser.add_argument("--version", action=Version)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in COMMANDS.items():
        about = module.__doc__.split(": ", 1)[1]
        command = commands.add_parser(name, help=about, description=about)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    words = with_command(sys.argv[1:] if words is None else words)
    use_package_of(words)
    try:
        load_files_of(words)
    except (LaunchFailed, ValueError) as error:
        parser.error(f"argument --load: {error}")
    args = parser.parse_args(words, argparse.Namespace(words=words))
    try:
        with sigterm_as_ctrl_c():
            code = args.run(args) or 0
        end_output()
        return code
    except (LaunchFailed, NothingToCompare) as error:
        print(f"bfbench {args.command}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.filename is not None or error.errno not in LOST_OUTPUT:
            raise
        sys.stdout = None  # Python would try once more at its end
        print(f"bfbench {args.command}: cannot write standard output: {error.strerror}",
              file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
