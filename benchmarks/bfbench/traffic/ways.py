"""Ways to train that bfbench traffic compares, as words of its command line."""

import argparse
import re
from typing import NamedTuple

from bfbench.algorithms import (
    NO_CODE,
    SCHEDULES,
    TOPOLOGIES,
    check_code,
    own_schedules,
    registered,
    row_named,
    takes_graphs,
    why_not,
)
from bfbench.contestants import PEERS as PEERS_OF_TRAIN
from bfbench.contestants import TORCH_DDP
from bfbench.launch import LaunchFailed

WORD = re.compile(r"(?P<name>[\w-]+)(\+(?P<code>[\w:.-]+))?(@(?P<graph>[\w-]+))?(/(?P<steps>\d+))?"
                  r"(?P<options>(~[^~]*)*)")
FORM = "NAME[+CODE][@GRAPH][/H][~OPTION=NUMBER…]"
PEERS = {"ddp": TORCH_DDP, "ddp_bf16": f"{TORCH_DDP}, bf16 hook",
         "ddp_powersgd": f"{TORCH_DDP}, PowerSGD hook",
         "post_local_sgd": "torch post-local SGD (gloo)",
         "decent_dp": PEERS_OF_TRAIN["decent_dp"]}
POST_LOCAL_SGD = "post_local_sgd"
LOCAL_SGD = "local_sgd"
DEFAULT_CODE = "default"
"""The code that an algorithm has by itself: none, or that of its row."""
ARGUMENTS = ("momentum", "global_period_rounds")
"""Options that the benchmark chooses, the same for all."""
OWN_GRAPH = "default"
"""The graph or schedule that an algorithm has by itself, such as random pairs."""


class Way(NamedTuple):
    """An algorithm or a peer, and the choices it is run with; empty texts where it has none."""
    algorithm: str
    code: str = ""
    graph: str = ""
    local_steps: int = 1
    """H: a step in so many communicates."""
    options: str = ""
    """~OPTION=NUMBER for each option of the algorithm's row that is not at its default."""

    def name(self):
        return (self.algorithm + (f"+{self.code}" if self.code else "")
                + (f"@{self.graph}" if self.graph else "")
                + (f"/{self.local_steps}" if self.local_steps > 1 else "") + self.options)

    def numbers(self):
        """The options as DecentralizedOptimizer takes them."""
        pairs = (each.partition("=") for each in self.options.split("~")[1:])
        return {name: float(number) for name, _, number in pairs}


def own_code(row):
    """The code that a row has where none is named; empty where it has none."""
    found = next((each.default for each in row.options if each.name == "compression"), "")
    return "" if found == "none" else str(found)


def meets_rarely(row):
    """Communicates in a step of H by its nature: outer steps, local SGD."""
    reads_outer = row.reads("outer_learning_rate") and not row.reads("global_period_rounds")
    return row.name == LOCAL_SGD or reads_outer


def graph_names():
    return (*TOPOLOGIES, *SCHEDULES, OWN_GRAPH, *own_schedules())


def parsed_word(word):
    """(name, code or None, graph or None, H or None, options); raises ArgumentTypeError."""
    found = WORD.fullmatch(word)
    if not found:
        raise argparse.ArgumentTypeError(f"expected {FORM}, such as gossip_diloco+int4@ring/30, "
                                         f"by commas; found '{word}'")
    name, code, graph, steps = (found[each] for each in ("name", "code", "graph", "steps"))
    name = registered_name(name)
    if graph is not None and graph not in graph_names():
        raise argparse.ArgumentTypeError(f"'{word}': expected a graph out of "
                                         f"{', '.join(graph_names())}; found '{graph}'")
    if steps == "0":
        raise argparse.ArgumentTypeError(f"'{word}': expected H of at least 1, found 0")
    for what, given, is_taken in (
            ("code", code, name not in PEERS and row_named(name).reads("compression")),
            ("graph", graph, name not in PEERS and takes_graphs(row_named(name))),
            ("H", steps, name == POST_LOCAL_SGD or (
                name not in PEERS and not row_named(name).needs_every_step))):
        if given is not None and not is_taken:
            raise argparse.ArgumentTypeError(f"'{word}': expected no {what}: {name} takes none")
    if code is not None:
        checked_code(word, code)
        if code == NO_CODE and own_code(row_named(name)):
            raise argparse.ArgumentTypeError(f"'{word}': expected a code, which {name} always has, "
                                             f"found '{code}'")
    check_options(word, name, found["options"])
    return name, code, graph, int(steps) if steps else None, found["options"]


def check_options(word, name, options):
    """Raises ArgumentTypeError unless each is a number for an option that the algorithm has."""
    known = [] if name in PEERS else sorted(
        option.name for option in row_named(name).options
        if isinstance(option.default, (int, float)) and not isinstance(option.default, bool)
        and option.name not in ARGUMENTS)
    given = [each.partition("=") for each in options.split("~")[1:]]
    for place, (option, _, number) in enumerate(given):
        if option in ARGUMENTS:
            raise argparse.ArgumentTypeError(f"'{word}': expected no {option}, which the benchmark "
                                             "chooses, the same for all")
        if option not in known:
            raise argparse.ArgumentTypeError(
                f"'{word}': expected an option of {name} out of {', '.join(known)}; found "
                f"'{option}'" if known else f"'{word}': expected no option: {name} has none here")
        if option in (earlier for earlier, _, _ in given[:place]):
            raise argparse.ArgumentTypeError(f"'{word}': expected each option once; found {option} "
                                             "again")
        try:
            float(number)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"'{word}': expected a number for {option}; found "
                                             f"'{number}'") from error


def checked_code(word, code):
    """The code, which there is; raises ArgumentTypeError for another one, in that word."""
    try:
        check_code(code)
    except (LaunchFailed, ValueError) as error:
        raise argparse.ArgumentTypeError(f"'{word}': {error}") from error
    return code


def code_list(text):
    """A type for argparse: codes by commas, each of which there is."""
    return list(dict.fromkeys(code if code == DEFAULT_CODE else checked_code(text, code)
                              for code in text.split(",")))


def registered_name(word):
    if word.replace("-", "_") in PEERS:
        return word.replace("-", "_")
    try:
        return row_named(word).name
    except LaunchFailed as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    except ValueError as error:
        known = ", ".join((*PEERS, *(row.name for row in registered())))
        meant = str(error).partition(f"found '{word}'")[2]
        raise argparse.ArgumentTypeError(f"expected names out of {known}; found '{word}'{meant}"
                                         ) from error


def way_list(text):
    """A type for argparse: words by commas, each of which can be run."""
    words = list(dict.fromkeys(text.split(",")))
    for word in words:
        parsed_word(word)
    return words


def ways_of(words, codes, graphs, local_steps):
    """Each word once for every code and graph that it leaves open and its algorithm takes."""
    found: dict[Way, None] = {}
    for name, code, graph, steps, options in map(parsed_word, words):
        if name in PEERS:
            found[Way(name, local_steps=steps or (local_steps if name == POST_LOCAL_SGD else 1))
                  ] = None
            continue
        row = row_named(name)
        has_codes, own = row.reads("compression"), own_code(row)
        for each_code in [code] if code else codes if has_codes else [DEFAULT_CODE]:
            for each_graph in [graph] if graph else graphs if takes_graphs(row) else [""]:
                found[Way(name, own if each_code == DEFAULT_CODE else each_code, each_graph,
                          steps or (local_steps if meets_rarely(row) else 1), options)] = None
    return list(found)


def why_unmeasured(way):
    """Why a way is left out; empty if it is not."""
    return "" if way.algorithm in PEERS else why_not(row_named(way.algorithm))


def peer_of(way):
    return PEERS.get(way.algorithm, "bluefog_cpp")
