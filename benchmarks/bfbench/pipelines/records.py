"""Records of bfbench pipeline: those of runs, and of several starts together."""

import statistics

KEY = ("way", "ranks", "batch_size", "chunks", "emulated")
PASSES = 3  # a backward pass counts as two forward passes
FIGURES = ("img_per_sec", "seconds", "accuracy", "memory_mib", "bytes_per_sec")
SHARES = ("loading", "forward", "backward", "bubble", "allreduce_exposed", "optimizer")


def record_of(events, **about):
    """A run, from the lines of its metrics file."""
    epochs = [event for event in events if event["event"] == "epoch"]
    result, = (event for event in events if event["event"] == "result")
    rows = sum(epoch["rows"] for epoch in epochs)
    return {**about, "img_per_sec": rows / result["seconds"], "seconds": result["seconds"],
            "accuracy": result["test_accuracy"], "memory_mib": max(result["memory_mib"]),
            "shares": shares_of(epochs),
            "stages": [epoch["stages"] for epoch in epochs],
            "frozen": [epoch["frozen"] for epoch in epochs],
            "bytes_per_sec": sum(rank["stage_bytes"] + rank["allreduce_bytes"]
                                 for epoch in epochs for rank in epoch["ranks"])
            / result["seconds"]}


def pause_us_of(events, layers):
    """Microseconds of a row in the forward pass of half a layer, from the last epoch of one rank:
    at least 1."""
    epoch = [event for event in events if event["event"] == "epoch"][-1]
    seconds = epoch["ranks"][0]["seconds"]
    passes = epoch["rows"] * 2 * layers * PASSES
    return max(round(1e6 * (seconds["forward"] + seconds["backward"]) / passes), 1)


def shares_of(epochs):
    """The uses of all ranks' time, as shares of it."""
    sums = [rank["seconds"] for epoch in epochs for rank in epoch["ranks"]]
    whole = sum(seconds["total"] + seconds["loading"] for seconds in sums)
    return {name: sum(seconds[name] for seconds in sums) / whole for name in SHARES}


def merge(records):
    """One record for each way, batch and number of chunks: medians over the starts, and each
    start's rate; with its share of the pipeline's that changes nothing, in the same language."""
    by_key = {}
    for record in records:
        by_key.setdefault(tuple(record[name] for name in KEY), []).append(record)
    merged = {}
    for key, found in by_key.items():
        merged[key] = {**found[0],
                       **{name: statistics.median(one[name] for one in found) for name in FIGURES},
                       "shares": {name: statistics.median(one["shares"][name] for one in found)
                                  for name in found[0]["shares"]},
                       "starts_img_per_sec": [one["img_per_sec"] for one in found]}
    for (way, *place), record in merged.items():
        for name, other in (("of_pipe", "pipe_ddp"), ("of_torch_pipe", "torch_pipe")):
            base = merged.get((other, *place))
            if base is not None and way != other:
                record[name] = record["img_per_sec"] / base["img_per_sec"]
    return list(merged.values())


def largest_that_fit(records, device_mib):
    """For each way the record of the largest batch whose memory a device has, and of equal ones the
    fastest; ways that fit with none are not there."""
    best = {}
    for record in records:
        if record["memory_mib"] > device_mib:
            continue
        rank = (record["batch_size"], record["img_per_sec"])
        place = (record["ranks"], record["way"])
        if place not in best or rank > best[place][0]:
            best[place] = (rank, record)
    return [record for _, record in best.values()]
