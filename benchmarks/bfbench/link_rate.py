"""The rate of links at which training reaches a wanted share of its speed without communication."""

from typing import NamedTuple

MOST_PROBES = 12
TOLERANCE = 0.01


class FoundRate(NamedTuple):
    rate: float
    share: float
    probes: list
    """(rate, share) of each one tried, in their order."""


def find_rate(probe, wanted, first, most_probes=MOST_PROBES, tolerance=TOLERANCE):
    """The rate out of those tried whose share is nearest to `wanted`.

    probe: from a rate to its share, which grows with the rate. Doubles or halves `first` until two
    rates lie around the wanted share, then halves their ratio; ends within `tolerance` of it.
    """
    probes, low, high = [], None, None
    rate = first
    while len(probes) < most_probes:
        share = probe(rate)
        probes.append((rate, share))
        if abs(share - wanted) <= tolerance:
            break
        if share < wanted:
            low = rate
        else:
            high = rate
        if low is None or high is None:
            rate = rate * 2 if high is None else rate / 2
        else:
            rate = (low * high) ** 0.5
    best = min(probes, key=lambda tried: abs(tried[1] - wanted))
    return FoundRate(*best, probes)
