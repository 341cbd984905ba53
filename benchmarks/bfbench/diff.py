"""bfbench diff: two files of records, figure by figure, with the noise of their starts."""

import json
import pathlib
import statistics

from rich import box
from rich.table import Table

from bfbench.output import console
from bfbench.records import KEY, SCALE_KEY, TRAIN_KEY

COLUMNS = ("measurement", "", "baseline ms", "test ms", "change", "noise")


class NothingToCompare(RuntimeError):
    pass


def add_arguments(parser):
    parser.add_argument("baseline", type=pathlib.Path, help="file of an earlier --json")
    parser.add_argument("test", type=pathlib.Path, help="file of a later one")


def load(path):
    """Records by what they measured."""
    try:
        return {key_of(record): record for record in json.loads(path.read_text())["records"]
                if not record.get("simulated")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NothingToCompare(f"{path}: expected a file that bfbench --json has written, found "
                               f"{type(error).__name__}: {error}") from error


def key_of(record):
    if "seeds" in record:
        raise ValueError("records of bfbench converge, which have no times")
    if "emulated" in record:  # of training on hosts, whose links' rate is found anew each time
        return tuple(record[name] for name in SCALE_KEY if name != "rate_mbit")
    return tuple(record[name] for name in (TRAIN_KEY if "algorithm" in record else KEY))


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
        for (name, old, old_starts), (_, new, new_starts) in zip(figures(baseline[key]),
                                                                 figures(test[key])):
            spreads = (noise(old_starts), noise(new_starts))
            yield (" ".join(map(str, key)), name, old, new,
                   None if None in spreads else max(spreads))


def row(measurement, name, old, new, spread):
    change = new / old - 1
    mark = " *" if spread is not None and abs(change) > spread else ""
    return (measurement, name, f"{old:.4g}", f"{new:.4g}", f"{change:+.1%}{mark}",
            "one start" if spread is None else f"±{spread:.1%}")


def run(args):
    baseline, test = load(args.baseline), load(args.test)
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
    screen.print("* more than the noise, half of the range of the starts")
    for path, only in ((args.baseline, baseline.keys() - test.keys()),
                       (args.test, test.keys() - baseline.keys())):
        for key in sorted(only, key=str):
            screen.print(f"only in {path}: {' '.join(map(str, key))}", markup=False)
