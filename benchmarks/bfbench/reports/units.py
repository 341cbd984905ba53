"""Figures with their units, as tables and charts say them."""


def time_text(microseconds):
    for unit, factor in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= factor:
            return f"{microseconds / factor:.2f} {unit}"
    return f"{microseconds:.2f} us"


def round_time_text(microseconds):
    """Of a time without many digits, as on an axis."""
    for unit, factor in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= factor:
            return f"{microseconds / factor:g} {unit}"
    return f"{microseconds:g} µs" if microseconds else "0"


def size_text(bytes_):
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if bytes_ >= factor and bytes_ % factor == 0:
            return f"{bytes_ // factor} {unit}"
    for unit, factor in (("GB", 10**9), ("MB", 10**6)):
        if bytes_ >= factor and bytes_ % (factor // 1000) == 0:
            return f"{bytes_ / factor:g} {unit}"
    return f"{bytes_} B"


def device_text(record):
    return "" if record["device"] == "cpu" else " on GPUs"
