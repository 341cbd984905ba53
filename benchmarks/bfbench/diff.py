"""bfbench diff: two files of records, figure by figure, with the noise of their starts."""

import json
import math
import pathlib
import statistics

from rich import box
from rich.table import Table

from bfbench.contestants import PLAIN, WRAPPED, ddp_of
from bfbench.output import console
from bfbench.records import SCALE_KEY, TRAIN_KEY, key_of_operation
from bfbench.versions import text_of

COLUMNS = ("measurement", "", "baseline", "test", "change", "noise")
# Options about how long to measure and where results go.
HOW_LONG = ("json", "report", "starts", "rounds", "steps", "seconds", "build",
            "job_timeout")
# Options that choose what is measured, as records themselves say.
WHICH = ("preset", "ranks", "hosts", "sizes", "dtype", "transports", "without", "with_peers",
         "models",
         "algorithms", "graphs", "compute", "batches", "hidden", "ddp_buckets", "many")
CONDITIONS = ("processor", "cores", "gpus", "kernel", "topology", "environment", "commit",
              "bluefog_cpp", "torch", "mpi", "mpi_settings", "mpi_single_copy", "python",
              "decent-dp", "date")
# A search that ends within 1 % of a share of 66 % leaves the rate of links open by 4.5 %.
RATES_ALIKE = 0.05


class NothingToCompare(RuntimeError):
    pass


def add_arguments(parser):
    parser.add_argument("baseline", type=pathlib.Path, help="file of an earlier --json")
    parser.add_argument("test", type=pathlib.Path, help="file of a later one")


def load(path):
    """Records by what they measured, and the versions of their run."""
    try:
        found = json.loads(path.read_text())
        if not isinstance(found, dict) or not isinstance(found.get("records"), list):
            raise NothingToCompare(
                f"{path}: expected a file that bfbench --json has written, found one "
                "without a list of records")
        if any("seeds" in record for record in found["records"]):
            raise NothingToCompare(
                f"{path}: records of bfbench converge and traffic are not compared: they have "
                "no times of starts")
        about = found.get("versions", {})
        if not isinstance(about, dict) or not isinstance(about.get("options", {}), dict):
            raise ValueError("versions that are no object")
        records = [in_words_of_today(record, about.get("options", {}))
                   for record in found["records"] if not record.get("simulated")]
        for record in records:
            check(record)
        return {key_of(record): record for record in records}, about
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NothingToCompare(f"{path}: expected a file that bfbench --json has written, found "
                               f"{type(error).__name__}: {error}") from error


def in_words_of_today(record, options):
    """A record of training, in whose earlier versions DDP had buckets as large as everybody's, and
    training without communication this project's optimizer."""
    if "algorithm" not in record or "ddp_buckets" in options or "bucket_mb" not in options:
        return record
    names = {"ddp": ddp_of(options["bucket_mb"]), PLAIN: WRAPPED}
    return {**record, "algorithm": names.get(record["algorithm"], record["algorithm"])}


def check(record):
    """Every figure is a time: what is none would end the comparison later."""
    what = " ".join(map(str, key_of(record)))
    for name, value, starts in figures(record):
        if not starts or not all(0 < each < math.inf for each in (value, *starts)):
            raise ValueError(f"'{what}', whose {name} is no time above 0")


def key_of(record):
    if "emulated" in record:  # of training on hosts, whose links' rate is found anew each time
        return tuple(record[name] for name in SCALE_KEY if name != "rate_mbit")
    if "algorithm" in record:
        return tuple(record[name] for name in TRAIN_KEY)
    return key_of_operation(record)


def figures(record):
    """(name, value, values of the starts) of each percentile; of steps in ms, of calls in µs."""
    if "algorithm" in record:
        for name, value in record["sec_per_iter"].items():
            yield (f"{name} ms", value * 1e3,
                   [start[name] * 1e3 for start in record["starts_sec_per_iter"]])
    else:
        yield "p50 µs", record["median_us"], record["starts_us"]
        yield "p95 µs", record["p95_us"], record["starts_p95_us"]


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


def time_text(value):
    return f"{value:.0f}" if value >= 1e4 else f"{value:.4g}"


def row(measurement, name, old, new, spread):
    change = new / old - 1
    mark = " *" if spread is not None and abs(change) > spread else ""
    return (measurement, name, time_text(old), time_text(new), f"{change:+.1%}{mark}",
            "one start" if spread is None else f"±{spread:.1%}")


def other_measurement(baseline, test):
    """The first option in which two runs measured different things, with both values; empty if
    there is none, or where a file says nothing of its options."""
    old, new = baseline.get("options", {}), test.get("options", {})
    for name in old:
        if name in new and name not in HOW_LONG + WHICH and old[name] != new[name]:
            what = "command" if name == "command" else f"--{name.replace('_', '-')}"
            return f"{what} {text_of(old[name])} and {text_of(new[name])}"
    return ""


def other_rates(baseline, test):
    """The first two rates of links at which both have trained and that are not alike; empty if
    there are none."""
    for key in (key for key in baseline if key in test):
        old, new = (found[key].get("rate_mbit") for found in (baseline, test))
        if old and new and not 1 / (1 + RATES_ALIKE) <= new / old <= 1 + RATES_ALIKE:
            return f"links of {old:.1f} and {new:.1f} Mbit/s"
    return ""


def other_conditions(baseline, test):
    """A line for each thing other than the options that differs and may tell in figures."""
    def of(about, name):
        if name == "date":
            return str(about[name])[:10]
        return "; ".join(map(str.strip, text_of(about[name]).splitlines()))
    for name in CONDITIONS:
        if name in baseline and name in test and of(baseline, name) != of(test, name):
            yield f"{name} differs: {of(baseline, name)} and {of(test, name)}"


def run(args):
    (baseline, about), (test, about_test) = load(args.baseline), load(args.test)
    different = other_measurement(about, about_test) or other_rates(baseline, test)
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
