"""The YAML file of a pipeline's run: what it takes, and a clear word for everything else."""

import dataclasses
import sys

import yaml


@dataclasses.dataclass
class Configuration:
    """A run of pytorch_pipeline.py."""

    stages: int = 0          # of a pipeline at the start; 0: one a rank
    schedule: str = "1f1b"   # or gpipe
    micro_batches: int = 0   # of a step; 0: chosen by the number of stages
    freeze: bool = True      # AutoFreeze
    by_gradients: bool = True  # the least gradient limits how deep to freeze
    alpha: float = 1 / 3     # the share of the unfrozen layers that freezes at a time
    shrink: bool = True      # AutoPipe and AutoDP: fewer stages, more pipelines
    epochs: int = 4
    batch_size: int = 128    # of all pipelines together
    lr: float = 0.001
    layers: int = 6          # of the encoder
    width: int = 64
    heads: int = 4
    patch: int = 7           # pixels of a patch's side
    seed: int = 1


def read(path):
    """The configuration of a file; ends the program with what was expected and found."""
    try:
        values = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        sys.exit(f"{path}: expected a YAML file, found: {error}")
    if not isinstance(values or {}, dict):
        sys.exit(f"{path}: expected names with values, found {values!r}")
    known = {field.name: field for field in dataclasses.fields(Configuration)}
    for name, value in (values or {}).items():
        if name not in known:
            sys.exit(f"{path}: expected keys of {', '.join(known)}, found '{name}'")
        kind = known[name].type
        fits = isinstance(value, (int, float) if kind is float else kind)
        if not fits or (isinstance(value, bool) and kind is not bool):
            sys.exit(f"{path}: expected a value of the type {kind.__name__} for '{name}', found "
                     f"{value!r}")
    return Configuration(**(values or {}))
