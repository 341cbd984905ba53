"""Figures with their units, as tables and charts say them."""


def time_text(microseconds):
    if microseconds < 1000:
        return f"{microseconds:.2f} us"
    return f"{microseconds / 1000:.2f} ms"


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
