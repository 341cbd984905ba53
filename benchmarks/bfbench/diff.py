"""bfbench diff: two files of records, figure by figure, with the noise of their starts."""

import json
import math
import pathlib
import statistics

from rich import box
from rich.table import Table

from bfbench.output import console
from bfbench.records import SCALE_KEY, TRAIN_KEY, key_of_operation
from bfbench.versions import text_of

COLUMNS = ("measurement", "", "baseline ms", "test ms", "change", "noise")
# Options that say how long is measured and where results go.
HOW_LONG = ("json", "report", "starts", "rounds", "steps", "seconds", "build")
# Those that choose what is measured by what records themselves say.
WHICH = ("preset", "ranks", "hosts", "sizes", "dtype", "transports", "without", "models", "algorithms",
         "graphs", "compute", "batches", "hidden")
MACHINE = ("processor", "cores", "gpus", "kernel", "environment")


class NothingToCompare(RuntimeError):
    pass


def add_arguments(parser):
    parser.add_argument("baseline", type=pathlib.Path, help="file of an earlier --json")
    parser.add_argument("test", type=pathlib.Path, help="file of a later one")


def load(path):
    """Records by what they measured, and the versions of their run."""
    try:
        found = json.loads(path.read_text())
        records = [record for record in found["records"] if not record.get("simulated")]
        for record in records:
            check(record)
        about = found.get("versions", {})
        if not isinstance(about, dict) or not isinstance(about.get("options", {}), dict):
            raise ValueError("versions that are no object")
        return {key_of(record): record for record in records}, about
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NothingToCompare(f"{path}: expected a file that bfbench --json has written, found "
                               f"{type(error).__name__}: {error}") from error


def check(record):
    """Every figure is a time: what is none would end the comparison later."""
    what = " ".join(map(str, key_of(record)))
    for name, value, starts in figures(record):
        if not starts or not all(0 < each < math.inf for each in (value, *starts)):
            raise ValueError(f"'{what}', whose {name} is no time above 0")


def key_of(record):
    if "seeds" in record:
        raise ValueError("records of bfbench converge, which have no times")
    if "emulated" in record:  # of training on hosts, whose links' rate is found anew each time
        return tuple(record[name] for name in SCALE_KEY if name != "rate_mbit")
    if "algorithm" in record:
        return tuple(record[name] for name in TRAIN_KEY)
    return key_of_operation(record)


def figures(record):
    """(name, value, values of the starts) of each percentile; times in ms."""
    if "algorithm" in record:
        for name, value in record["sec_per_iter"].items():
            yield name, value * 1e3, [start[name] * 1e3 for start in record["starts_sec_per_iter"]]
    else:
        yield "p50", record["median_us"] / 1e3, [us / 1e3 for us in record["starts_us"]]
        yield "p95", record["p95_us"] / 1e3, [us / 1e3 for us in record["starts_p95_us"]]


def noise(values):
    """Half of the range of the starts, as a share of their median; None of a single start."""
    if len(values) < 2:
        return None
    return (max(values) - min(values)) / 2 / statistics.median(values)


def compare(baseline, test):
    """(measurement, percentile, old, new, noise of the noisier one or None) of what both have."""
    for key in (key for key in baseline if key in test):
        later = {name: found for name, *found in figures(test[key])}
        for name, old, old_starts in figures(baseline[key]):
            if name not in later:
                continue
            new, new_starts = later[name]
            spreads = (noise(old_starts), noise(new_starts))
            yield (" ".join(map(str, key)), name, old, new,
                   None if None in spreads else max(spreads))


def row(measurement, name, old, new, spread):
    change = new / old - 1
    mark = " *" if spread is not None and abs(change) > spread else ""
    return (measurement, name, f"{old:.4g}", f"{new:.4g}", f"{change:+.1%}{mark}",
            "one start" if spread is None else f"±{spread:.1%}")


def other_measurement(baseline, test):
    """The first option in which two runs measured different things, with both values; empty if there
    is none, or where a file says nothing of its options."""
    old, new = baseline.get("options", {}), test.get("options", {})
    for name in old:
        if name in new and name not in HOW_LONG + WHICH and old[name] != new[name]:
            what = "command" if name == "command" else f"--{name.replace('_', '-')}"
            return f"{what} {text_of(old[name])} and {text_of(new[name])}"
    return ""


def other_conditions(baseline, test):
    """A line for each thing other than the options that differs and may tell in figures."""
    def of(about, name):
        return about[name] if name != "date" else str(about[name])[:10]
    for name in (*MACHINE, "date"):
        if name in baseline and name in test and of(baseline, name) != of(test, name):
            yield f"{name} differs: {text_of(of(baseline, name))} and {text_of(of(test, name))}"


def run(args):
    (baseline, about), (test, about_test) = load(args.baseline), load(args.test)
    different = other_measurement(about, about_test)
    if different:
        raise NothingToCompare(f"expected two runs of the same, found {different} in "
                               f"{args.baseline} and {args.test}")
    rows = [row(*found) for found in compare(baseline, test)]
    if not rows:
        raise NothingToCompare(f"{args.baseline} and {args.test} have no measurement in common")
    table = Table(box=box.SIMPLE)
    for index, column in enumerate(COLUMNS):
        table.add_column(column, justify="left" if index < 2 else "right", no_wrap=True)
    for cells in rows:
        table.add_row(*cells)
    screen = console()
    screen.print(table)
    for line in other_conditions(about, about_test):
        screen.print(f"warning: {line}", markup=False)
    screen.print("* more than the noise, half of the range of the starts")
    for path, only in ((args.baseline, baseline.keys() - test.keys()),
                       (args.test, test.keys() - baseline.keys())):
        for key in sorted(only, key=str):
            screen.print(f"only in {path}: {' '.join(map(str, key))}", markup=False)
