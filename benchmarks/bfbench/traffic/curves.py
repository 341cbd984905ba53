"""Means over seeds, and what each way has spent when it reaches the loss of the baseline."""

import math
import statistics

from bfbench.records import over_seeds
from bfbench.traffic.ways import Way

KEY = ("peer", *Way._fields, "shards", "ranks", "hosts", "rate_mbit", "batch_size", "task", "data",
       "steps")
PLACE = ("shards", "ranks", "hosts", "rate_mbit", "task", "data")
"""The fields that ways share which are compared."""
SPENT = ("step", "seconds", "bytes")
FIGURES = ("loss", "accuracy", "consensus_distance", "seconds", "bytes")


def spent_at(points, loss):
    """{step, seconds, bytes} at which the curve first comes down to `loss`, on straight lines
    between its points; None where it does not."""
    before = None
    for point in points:
        if point["loss"] <= loss:
            if before is None:
                return {name: point[name] for name in SPENT}
            part = (before["loss"] - loss) / (before["loss"] - point["loss"])
            return {name: before[name] + part * (point[name] - before[name]) for name in SPENT}
        before = point
    return None


def finite_part(points):
    """Those before the first one with a loss or a distance that is no finite number."""
    for place, point in enumerate(points):
        if not (math.isfinite(point["loss"]) and math.isfinite(point["consensus_distance"])):
            return points[:place]
    return points


def diverged_at(points):
    """The step by which the run has diverged; None of one that has not."""
    place = len(finite_part(points))
    return points[place]["step"] if place < len(points) else None


def end_of(run, name):
    """A figure at the end of a run; where it has diverged no number, but of what it has cost."""
    is_cost = name in SPENT
    return run["points"][-1][name] if is_cost or diverged_at(run["points"]) is None else math.nan


def mean_curve(runs):
    """Points of several seeds as one curve, as far as all go without diverging: means, and
    deviations of the loss and accuracy."""
    curve = []
    for points in zip(*(finite_part(run["points"]) for run in runs)):
        entry: dict = {name: statistics.fmean(point[name] for point in points)
                       for name in (*SPENT, *FIGURES)}
        for name in ("loss", "accuracy"):
            values = [point[name] for point in points]
            entry[f"{name}_deviation"] = statistics.stdev(values) if len(values) > 1 else None
        curve.append(entry)
    return curve


def place_of(record):
    return tuple(record[name] for name in PLACE)


def targets_of(runs, baseline):
    """The loss that the baseline ends with, by place and seed."""
    return {(*place_of(run), run["seed"]): run["points"][-1]["loss"]
            for run in runs
            if run["algorithm"] == baseline and diverged_at(run["points"]) is None}


def merged(runs, baseline):
    """A record for each way and place: `curve`; the figures at its end, means over seeds with
    deviation; `diverged_at_by_seed`: the step by which the loss was no number; `at_loss`: what it
    has spent where it reaches the loss that the baseline of the same seed ends with, if all seeds
    do, and as a share of the baseline's."""
    runs = [run for run in runs if "not_run" not in run]
    targets = targets_of(runs, baseline)
    by_key: dict[tuple, list] = {}
    for run in runs:
        by_key.setdefault(tuple(run[name] for name in KEY), []).append(run)
    records = []
    for key, found in by_key.items():
        record = {**dict(zip(KEY, key)), "parameters": found[0]["parameters"],
                  "seeds": [run["seed"] for run in found], "curve": mean_curve(found),
                  "diverged_at_by_seed": [diverged_at(run["points"]) for run in found]}
        for name in FIGURES:
            record |= over_seeds(name, [end_of(run, name) for run in found])
        record["bytes_per_step_and_rank"] = record["bytes"] / record["steps"] / record["ranks"]
        spent = [spent_at(finite_part(run["points"]), targets[place])
                 for run in found if (place := (*place_of(run), run["seed"])) in targets]
        if len(spent) == len(found) and None not in spent:
            record["at_loss"] = {}
            for name in SPENT:
                record["at_loss"] |= over_seeds(name, [each[name] for each in spent])
        records.append(record)
    return with_shares(records, baseline)


def with_shares(records, baseline):
    """Adds to `at_loss` what it is of the baseline's."""
    of_baseline = {place_of(record): record["at_loss"] for record in records
                   if record["algorithm"] == baseline and "at_loss" in record}
    for record in records:
        base = of_baseline.get(place_of(record))
        if base and "at_loss" in record:
            for name in SPENT:
                share = record["at_loss"][name] / base[name] if base[name] else None
                record["at_loss"][f"{name}_share"] = share
    return records
