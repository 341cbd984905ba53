"""Options that the commands share, and what is said of words that do not fit."""

import argparse
import contextlib
import errno
import math
import os
import pathlib

from bfbench.contestants import DDP_BUCKETS, TORCHS_OWN
from bfbench.launch import ROOT

MOST_RANKS = 64
DEFAULT_BUILD = ROOT / "build" / "release"
# A machine of few cores is fast in some starts and slow in others.
STARTS = 7


def _number(word, kind, text, least, most):
    try:
        value = kind(word)
    except ValueError:
        value = math.nan
    if not (least <= value <= most and value < math.inf):
        limit = f"from {least} to {most}" if most < math.inf else f"of at least {least}"
        whole = "whole number" if kind is int else "number"
        raise argparse.ArgumentTypeError(f"expected a {whole} {limit}, found '{word}'" +
                                         (f" in '{text}'" if word != text else ""))
    return value


def whole(least=1, most=math.inf):
    """A whole number from `least` to `most`."""
    return lambda text: _number(text, int, text, least, most)


def seconds(text):
    return _number(text, float, text, 0.001, math.inf)


def positive(text):
    return _number(text, float, text, 1e-9, math.inf)


def share(text):
    return _number(text, float, text, 0.01, 0.99)


def rate_mbit(text):
    """The rate of links, Mbit/s: what tc's words take, and this machine can tell from no limit."""
    return _number(text, float, text, 1, 100_000)


def rate_or_auto(text):
    return text if text == "auto" else rate_mbit(text)


def whole_list(least=1, most=math.inf):
    """Whole numbers by commas; each counts once."""
    return lambda text: list(dict.fromkeys(_number(word, int, text, least, most)
                                           for word in text.split(",")))


def choice_list(choices):
    """Names by commas, each of them among `choices`; each counts once."""
    def parse(text):
        for word in text.split(","):
            if word not in choices:
                raise argparse.ArgumentTypeError(
                    f"expected names by commas out of {', '.join(choices)}; found '{word}'")
        return list(dict.fromkeys(text.split(",")))
    return parse


def bucket_list(text):
    """Sizes of DDP's buckets in MiB, or torch's own, by commas; each counts once."""
    return list(dict.fromkeys(
        word if word == TORCHS_OWN else str(_number(word, int, text, 1, 1 << 20))
        for word in text.split(",")))


def new_file(text):
    """A file that can be written: tried before measuring, which may take hours."""
    path = pathlib.Path(text)
    if path.is_dir() or not path.resolve().parent.is_dir():
        raise argparse.ArgumentTypeError(f"expected a file in a folder that exists, found '{text}'")
    try:
        try_to_write(path)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"expected a file that can be written, found '{text}': "
                                         f"{error.strerror}") from error
    return path


def try_to_write(path):
    """Raises OSError where that cannot be; what a file holds stays, and a new one goes again."""
    is_new = not path.exists()
    if not is_new and not path.is_file():  # a pipe would be at its end once it has been opened
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o666))
    if is_new:
        path.unlink()


def new_folder(text):
    path = pathlib.Path(text)
    if path.exists() and not path.is_dir():
        raise argparse.ArgumentTypeError(f"expected a folder, or none yet, found the file '{text}'")
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        path.mkdir(parents=True, exist_ok=True)
        if (path / "report.html").is_dir():
            raise IsADirectoryError(errno.EISDIR, "report.html is a folder", str(path))
        try_to_write(path / "report.html")
    except OSError as error:
        raise argparse.ArgumentTypeError(f"expected a folder that can be written, found '{text}': "
                                         f"{error.strerror}") from error
    finally:
        for folder in made:
            with contextlib.suppress(OSError):
                folder.rmdir()
    return path


def add_rank_list(parser, default):
    parser.add_argument("--ranks", type=whole_list(1, MOST_RANKS), default=default, metavar="N,…",
                        help="numbers of ranks")


def add_ddp_buckets(parser):
    parser.add_argument("--ddp-buckets", type=bucket_list, default=list(DDP_BUCKETS),
                        metavar="MIB,…", help=f"sizes of DDP's buckets, each measured; "
                        f"{TORCHS_OWN}: as torch has them where a program says nothing. Ratios are "
                        f"to the fastest. Default: {','.join(DDP_BUCKETS)}")


def add_output(parser, starts=STARTS):
    parser.add_argument("--starts", type=whole(), default=starts, metavar="N",
                        help="fresh starts of everything, of which medians count")
    add_output_files(parser)


def add_output_files(parser):
    parser.add_argument("--json", type=new_file, metavar="FILE", help="file for the records")
    parser.add_argument("--report", type=new_folder, metavar="FOLDER",
                        help="folder for the charts and report.html")
    parser.add_argument("--build", type=pathlib.Path, default=DEFAULT_BUILD, metavar="FOLDER",
                        help="the build that is measured")
    parser.add_argument("--job-timeout", type=seconds, metavar="SECONDS",
                        help="after which a job, or one turn of it, is ended and listed; default: "
                        "far more than it takes")
