"""The ways to train that bfbench pipeline compares, and what each of them runs."""

from typing import NamedTuple

from bfbench.launch import ROOT, LaunchFailed

OFF = {"freeze": False, "repartition": False, "shrink": False, "cache": False}


class Way(NamedTuple):
    label: str
    """As tables have it."""
    language: str
    parts: dict
    """Keys of a configuration (examples/pipeline_configurations)."""
    words: tuple = ()
    """Of the example's command line."""
    has_chunks: bool = True


def parts(*names):
    return {**OFF, **dict.fromkeys(names, True)}


WAYS = {
    "ddp": Way("torch DDP (gloo)", "Python", parts(), ("--ddp", "--backend", "gloo"), False),
    "torch_pipe": Way("torch's pipelining (gloo)", "Python", parts(), ("--backend", "gloo")),
    "python_pipe": Way("torch's pipelining (bluefog)", "Python", parts()),
    "pipe_ddp": Way("Pipe+DDP", "C++", parts()),
    "freeze": Way("  + freeze", "C++", parts("freeze")),
    "pipe": Way("  + freeze + pipe", "C++", parts("freeze", "repartition")),
    "dp": Way("  + freeze + pipe + dp", "C++", parts("freeze", "repartition", "shrink")),
    "cache": Way("  + freeze + pipe + dp + cache", "C++",
                 parts("freeze", "repartition", "shrink", "cache")),
}


def command_of(way, build, python):
    """The program of a way, and the words that say what it is; raises LaunchFailed where it is not
    there: examples are part of a clone, not of a wheel."""
    own = WAYS[way]
    program = (build / "examples/train_pipeline/train_pipeline" if own.language == "C++"
               else ROOT / "examples/pytorch_pipeline.py")
    if not program.exists():
        raise LaunchFailed(f"expected {program}, found nothing there: build the target "
                           "train_pipeline in a clone, or name the build folder with --build",
                           f"{program.name} is not there")
    return (*((python,) if own.language == "Python" else ()), program, *own.words)


def configuration_of(way, **chosen):
    """The YAML file of a run."""
    return "".join(f"{name}: {str(value).lower() if isinstance(value, bool) else value}\n"
                   for name, value in {**WAYS[way].parts, **chosen}.items())
