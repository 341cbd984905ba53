"""The YAML file of a pipeline's run: what it takes, and a clear word for everything else. The C++
program train_pipeline reads the same files."""

import dataclasses
import math
import sys

import yaml

MANY = 1 << 30


def whole(default, low, high=MANY):
    return dataclasses.field(default=default, metadata={
        "fits": lambda value: type(value) is int and low <= value <= high,
        "expected": f"a whole number from {low} to {high}"})


def between(default, low, high):
    return dataclasses.field(default=default, metadata={
        "fits": lambda value: low < number(value) < high,
        "expected": f"a number between {low} and {high}"})


def truth(default):
    return dataclasses.field(default=default, metadata={
        "fits": lambda value: type(value) is bool, "expected": "true or false"})


def choice(*names):
    return dataclasses.field(default=names[0], metadata={
        "fits": lambda value: value in names, "expected": " or ".join(names)})


def text(default):
    return dataclasses.field(default=default, metadata={
        "fits": lambda value: isinstance(value, str) and value, "expected": "a text"})


def number(value):
    """A value as a number; PyYAML takes 1e-3, without a point, for a text."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        return math.nan


@dataclasses.dataclass
class Configuration:
    """A run of pytorch_pipeline.py or train_pipeline."""

    model: str = choice("vit", "bert")
    stages: int = whole(0, 0)           # of a pipeline at the start; 0: one a rank
    schedule: str = choice("1f1b", "gpipe")
    costs: str = choice("parameters", "time")  # what stages are divided by; time: measured at first
    micro_batches: int = whole(0, 0)    # of a step; 0: chosen by the number of stages
    try_micro_batches: bool = truth(False)  # the fastest of some, tried where stages have changed
    replicas: str = choice("gradients", "parameters")  # what they average; the latter in C++ alone
    freeze: bool = truth(True)          # AutoFreeze
    by_gradients: bool = truth(True)    # the least gradient limits how deep to freeze
    alpha: float = between(1 / 3, 0, 1)  # the share of the unfrozen layers that freezes at a time
    repartition: bool = truth(True)     # AutoPipe: frozen layers count a sixth
    shrink: bool = truth(True)          # AutoDP: fewer stages, more pipelines
    cache: bool = truth(False)          # AutoCache: outputs are kept
    cache_memory_mib: int = whole(256, 0)
    cache_disk_mib: int = whole(1024, 0)
    cache_folder: str = text("/tmp")
    epochs: int = whole(4, 1)
    batch_size: int = whole(128, 1)     # of all pipelines together
    lr: float = between(0.001, 0, 1e6)
    layers: int = whole(6, 1, 1000)     # of the encoder
    width: int = whole(64, 1, 1 << 20)
    heads: int = whole(4, 1, 1 << 20)
    patch: int = whole(7, 1, 1 << 20)   # pixels of a patch's side
    tokens: int = whole(64, 1, 1 << 20)  # bytes of a window of text
    pause_us: int = whole(0, 0, 1_000_000)  # slept a row and half layer, in place of computing
    seed: int = whole(1, 0)

    def __post_init__(self):
        self.alpha, self.lr = float(self.alpha), float(self.lr)


class Loader(yaml.SafeLoader):
    """PyYAML's, which refuses a name that is given twice: of its own it takes the last value."""

    def construct_mapping(self, node, deep=False):
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"expected '{key.value}' once, found it twice",
                    problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def read(path):
    """The configuration of a file; ends the program with what was expected and found."""
    try:
        values = yaml.load(path.read_text(), Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        sys.exit(f"{path}: expected a YAML file, found: {error}")
    if not isinstance({} if values is None else values, dict):
        sys.exit(f"{path}: expected names with values, found {values!r}")
    known = {field.name: field.metadata for field in dataclasses.fields(Configuration)}
    for name, value in (values or {}).items():
        if name not in known:
            sys.exit(f"{path}: expected keys of {', '.join(known)}, found '{name}'")
        if not known[name]["fits"](value):
            sys.exit(f"{path}: expected {known[name]['expected']} for '{name}', found {value!r}")
    chosen = Configuration(**(values or {}))
    if chosen.try_micro_batches and chosen.micro_batches:
        sys.exit(f"{path}: expected micro_batches of 0 with try_micro_batches, found "
                 f"{chosen.micro_batches}")
    return chosen
