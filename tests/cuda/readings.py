"""What the rung takes from its programs' words."""

import collections
import contextlib
import itertools
import json
import re

KEPT = 4000
"""Characters of the end of what a part printed, on either stream."""


def read_cases(out):
    """Cases of a GoogleTest program are counted; those that began and did not end are
    named."""
    ended = {word: re.findall(rf"\[ +{mark} +\] ([^\s,]+\.[^\s,]+).*\(\d+ ms\)", out)
             for word, mark in (("passed", "OK"), ("skipped", "SKIPPED"), ("failed", "FAILED"))}
    read = {word: len(set(cases)) for word, cases in ended.items()}
    if ended["skipped"]:
        read["why_skipped"] = sorted(set(re.findall(r": Skipped\n(.+)", out)))
    # Cases are counted by number, since each of several ranks prints them.
    begun = collections.Counter(re.findall(r"\[ +RUN +\] (\S+\.\S+)", out))
    if unfinished := begun - collections.Counter(itertools.chain(*ended.values())):
        read["unfinished"] = sorted(unfinished)
    return read


def read_survivors(wanted, out):
    """The lines of ranks that went on when another was killed."""
    survivors = re.findall(r"^survivor \d+ .*", out, re.MULTILINE)
    if len(survivors) != wanted:
        raise ValueError(f"expected {wanted} lines of survivors, found {survivors}")
    return {"survivors": survivors}


def read_figures(out):
    """The last line that is a JSON object: NCCL prints its warnings there too."""
    for line in reversed(out.splitlines()):
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                return {"figures": json.loads(line)}
    raise ValueError(f"expected JSON, found {out[-500:]!r}")


def read_records(out):
    """Lines of JSON objects, one for each figure."""
    records = []
    for line in out.splitlines():
        if line.startswith("{"):
            with contextlib.suppress(ValueError):
                records.append(json.loads(line))
    if not records:
        raise ValueError(f"expected lines of JSON, found {out[-500:]!r}")
    return {"records": records}


def read_rate(out):
    """Images per second of pytorch_benchmark.py."""
    if found := re.search(r"Total img/sec on \d+ GPU\(s\): ([\d.]+) \+- ([\d.]+)", out):
        return {"images_per_second": [float(value) for value in found.groups()]}
    raise ValueError(f"expected a total of images, found {out[-KEPT:]!r}")
