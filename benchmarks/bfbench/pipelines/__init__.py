"""bfbench pipeline: training in pipelines that freeze, shrink, widen and keep outputs, beside
torch's DDP and torch's own pipelining over gloo."""

from bfbench.pipelines.command import add_arguments, run

__all__ = ["add_arguments", "run"]
