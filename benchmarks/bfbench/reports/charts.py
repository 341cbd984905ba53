"""The parts of charts: sorted bars with their names and figures on them, lines with their names at
their ends; this project in one colour, at most eight of them beside each other."""

import io
import textwrap
from typing import NamedTuple

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from bfbench.records import LIMITS

MOST_BARS = 8
NO_COMMUNICATION = "no communication"
OWN, LIMIT = "#1a6fb5", "#3c4043"
PEERS = {"Decent-DP": "#76a35c", "NCCL": "#76a35c", "Open MPI": "#9a86bd", "bluefog": "#8ab6dc",
         "gloo": "#d98a3d"}
OTHER = "#b8bcc2"
# Lines of one colour differ by style.
STYLES = ("-", "--", "-.", ":", (0, (1, 1)), (0, (8, 2)), (0, (3, 1, 1, 1)), (0, (8, 2, 1, 2)))
BESIDE_BAR = 5  # points between a bar's end and its figure
SAMPLE = 0.08  # of a line beside its name, as a share of the axes' width
LEAST_GAP = 0.055  # between the names of lines, as a share of the axes' height


def subplots(*shape, **options):
    """The one of pyplot, which is told here alone that there is no screen."""
    return pyplot.subplots(*shape, layout="constrained", **options)


def as_png(figure):
    """The bytes of a file; the figure is gone then."""
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=120)
    pyplot.close(figure)
    return png.getvalue()


class Bar(NamedTuple):
    name: str
    value: float
    text: str
    """The figure as it is written beside the bar."""
    colour: str
    low: float | None = None
    high: float | None = None
    """The ends of the line that says how far starts lie apart."""


def colour_of(peer):
    """A peer's is that of the first name that it is known by."""
    if peer == "bluefog_cpp":
        return OWN
    if peer in (*LIMITS, NO_COMMUNICATION):
        return LIMIT
    return next((colour for name, colour in PEERS.items() if name in peer),
                OTHER)


def draw_bars(axes, bars, is_less_better=False, best_first=True):
    """From the top down: the best first, or as they are given."""
    if best_first:
        bars = sorted(bars, key=lambda bar: bar.value, reverse=not is_less_better)
    places = range(len(bars))
    drawn = axes.barh(places, [bar.value for bar in bars], 0.72,
                      color=[bar.colour for bar in bars])
    for place, bar in zip(places, bars):
        if bar.low is not None and bar.high is not None:
            axes.plot([bar.low, bar.high], [place, place], color="black", linewidth=1.2)
    for place, bar in zip(places, bars):
        end = max(bar.value, bar.high or 0)
        axes.annotate(bar.text, (end, place), (BESIDE_BAR, 0), textcoords="offset points",
                      va="center", fontsize=9)
    axes.set_yticks(places, [bar.name for bar in bars], fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(0, longest_of(bars) * 2)
    axes.tick_params(axis="x", labelsize=8)
    axes.tick_params(axis="y", length=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return drawn


def longest_of(bars):
    return max([max(bar.value, bar.high or 0) for bar in bars], default=1) or 1


def make_room_for_figures(axes, bars):
    """Scales the axes, whose place in the figure is known, so that no figure is cut off."""
    width = axes.get_window_extent().width
    longest = longest_of(bars)
    limit = longest
    for text in axes.texts:
        room = text.get_window_extent().width + 2 * BESIDE_BAR
        end = text.xy[0]
        limit = max(limit, end * width / max(width - room, 0.2 * width))
    axes.set_xlim(0, limit)
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= longest])


def panels_of_bars(title, panels, label, is_less_better=False, tick_text=None, best_first=True):
    """A figure of (title, bars) below each other, each with its own scale, and at most eight bars:
    it says so where there are more.

    tick_text: how a number is written at the axis.
    best_first: the bars of each panel by value; else in the order in which they are given."""
    panels = [(name, chosen_of(bars, is_less_better), len(bars)) for name, bars in panels]
    heights = [len(bars) + 1.6 for _, bars, _ in panels]
    figure, all_axes = subplots(len(panels), 1, figsize=(10, 0.9 + 0.3 * sum(heights)),
                                squeeze=False, height_ratios=heights)
    for axes, (name, bars, count) in zip(all_axes.flat, panels):
        draw_bars(axes, bars, is_less_better, best_first)
        rest = f"{len(bars)} of {count}, of ours the best; all are in the table"
        axes.set_title(f"{name} ({rest})" if count > len(bars) else name, fontsize=10,
                       loc="left", fontweight="bold")
        if tick_text:
            axes.xaxis.set_major_formatter(lambda value, _: tick_text(value))
    all_axes[-1, 0].set_xlabel(label, fontsize=9)
    figure.suptitle(wrapped(title), fontsize=11)
    figure.draw_without_rendering()  # texts have a size then
    for axes, (_, bars, _) in zip(all_axes.flat, panels):
        make_room_for_figures(axes, bars)
    return figure


def chosen_of(bars, is_less_better):
    """At most eight, in their order: who is compared with, and the best of this project's."""
    sign = 1 if is_less_better else -1
    places = sorted(range(len(bars)),
                    key=lambda place: (bars[place].colour == OWN, sign * bars[place].value))
    return [bars[place] for place in sorted(places[:MOST_BARS])]


def wrapped(title):
    return "\n".join(textwrap.fill(line, 110) for line in title.splitlines())


def name_lines(axes, ends):
    """Names beside the last points of lines, (height, text, colour, style) of each, moved apart
    where they would cover each other, each with a piece of its line. The axes' scale is set before,
    its limits are those of the lines."""
    low, high = axes.get_ylim()
    scale = axes.transData.transform
    bottom, top = scale((1, low))[1], scale((1, high))[1]
    placed = []
    for height, *rest in sorted(ends):
        share = (scale((1, height))[1] - bottom) / (top - bottom)
        placed.append((share if not placed else max(share, placed[-1][0] + LEAST_GAP), *rest))
    over = max(0.0, placed[-1][0] - 1) if placed else 0.0
    for share, text, colour, style in placed:
        place = share - over
        axes.plot([1.02, 1.02 + SAMPLE], [place, place], linestyle=style, color=colour,
                  linewidth=1.8, transform=axes.transAxes, clip_on=False)
        axes.annotate(text, (1.02 + SAMPLE, place), (5, 0), xycoords="axes fraction",
                      textcoords="offset points", va="center", fontsize=9,
                      color=OWN if colour == OWN else "black", annotation_clip=False)
    axes.set_ylim(low, high)
