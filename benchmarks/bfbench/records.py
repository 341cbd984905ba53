"""Records of measurements: what several starts say together."""

import statistics

KEY = ("peer", "op", "ranks", "hosts", "dtype", "bytes")
FIGURES = ("median_us", "p95_us", "algbw_gbps", "busbw_gbps", "limit_ratio")


def merge_starts(starts):
    """One record for each measurement: medians over the starts, and each start's median.

    `starts` is a list of lists of records. A measurement that some starts lack keeps those it has.
    """
    by_key = {}
    for start in starts:
        for record in start:
            by_key.setdefault(tuple(record[name] for name in KEY), []).append(record)
    merged = []
    for key, records in by_key.items():
        entry = dict(zip(KEY, key))
        entry.update({name: statistics.median(record[name] for record in records)
                      for name in FIGURES})
        entry["starts_us"] = [record["median_us"] for record in records]
        merged.append(entry)
    return merged


def add_peer_ratios(records):
    """Adds to each of this project's records the time of the fastest peer's operation of the same
    kind as a multiple of its own: above 1, this project is faster.
    """
    def kind(record):
        return "allreduce" if "allreduce" in record["op"].lower().replace(
            "neighbor_allreduce", "") else "average"

    for record in records:
        if record["peer"] != "bluefog_cpp" or record["op"].startswith(("win_", "hierarchical")):
            continue
        rivals = [other for other in records
                  if other["peer"] not in ("bluefog_cpp", "memcpy")
                  and all(other[name] == record[name] for name in ("ranks", "dtype", "bytes"))
                  and kind(other) == kind(record)]
        if rivals:
            best = min(rivals, key=lambda other: other["median_us"])
            record["fastest_peer"] = f"{best['peer']} {best['op']}"
            record["peer_ratio"] = best["median_us"] / record["median_us"]
            gloo = [other for other in rivals if other["peer"] == "gloo"]
            if gloo:
                record["gloo_ratio"] = min(o["median_us"] for o in gloo) / record["median_us"]
    return records
