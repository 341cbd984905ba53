"""The lines and records of a run of pytorch_pipeline.py, as train_pipeline has them."""

import contextlib
import ctypes
import dataclasses
import json
import pathlib

import torch.distributed as dist

from helpers import model_file

# Names of a metrics file by the fields of StepTimes.
SECONDS = {"forward": "forward", "backward": "backward", "bubble": "waiting",
           "allreduce_exposed": "averaging", "allreduce": "averaging_whole", "optimizer": "optimizer",
           "total": "total"}
COUNTS = {"stage_bytes": "stage_bytes", "allreduce_bytes": "averaged_bytes",
          "allreduce_parameters": "averaged_parameters", "machine_syncs": "machine_syncs"}


def status_mib(name):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    return 0.0


class Growth:
    """The peak of resident memory over what is resident when this is made."""

    def __init__(self):
        ctypes.CDLL(None).malloc_trim(0)
        with contextlib.suppress(OSError):
            pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        self._base = status_mib("VmRSS")

    def mib(self):
        return max(status_mib("VmHWM") - self._base, 0.0)


def record_of(pipe, loading):
    """A step of this rank."""
    return {"rank": dist.get_rank(), "pipeline": pipe.replica, "stage": pipe.stage,
            "cached_rows": pipe.cached_rows,
            "seconds": {"loading": loading, **{name: getattr(pipe.times, field)
                                               for name, field in SECONDS.items()}},
            **{name: getattr(pipe.times, field) for name, field in COUNTS.items()}}


def sum_of(records):
    found = dict(records[0])
    found["seconds"] = {name: sum(record["seconds"][name] for record in records)
                        for name in records[0]["seconds"]}
    for name in (*COUNTS, "cached_rows"):
        found[name] = sum(record[name] for record in records)
    return found


def breakdown_text(record, steps):
    seconds = record["seconds"]
    whole = max(seconds["total"] + seconds["loading"], 1e-9)
    shares = {name: f"{100 * value / whole:.0f} %" for name, value in seconds.items()}
    return (f"loading {shares['loading']}, forward {shares['forward']}, backward "
            f"{shares['backward']}, bubble {shares['bubble']}, all-reduce "
            f"{shares['allreduce_exposed']} ({shares['allreduce']} whole), optimizer "
            f"{shares['optimizer']}; {record['stage_bytes'] / whole / 1e6:.2f} MB/s to stages, "
            f"{record['allreduce_bytes'] / whole / 1e6:.2f} MB/s in all-reduces of "
            f"{record['allreduce_parameters'] // steps} parameters, "
            f"{record['machine_syncs'] / whole:.1f} syncs/s between machines")


class Report:
    """Rank 0 prints and writes; calls are collective unless they say otherwise."""

    def __init__(self, path, configuration, parameters):
        problem, self._file = "", None
        if path is not None and dist.get_rank() == 0:
            try:
                self._file = path.open("w")
            except OSError as error:
                problem = f"--metrics {path}: expected a file that can be written, found: {error}"
        model_file.end_with(problem)
        self._steps = []
        self._write({**dataclasses.asdict(configuration), "event": "run",
                     "ranks": dist.get_world_size(), "parameters": parameters})

    def _write(self, line):
        if self._file is not None:
            print(json.dumps(line), file=self._file, flush=True)

    def tell(self, line):
        """Not collective: rank 0 prints the line."""
        if dist.get_rank() == 0:
            print(line, flush=True)

    def add(self, rows, record):
        """Not collective: this rank's step, and the rows of all pipelines."""
        self._steps.append((rows, record))

    def end_epoch(self, line, **figures):
        """The line, the breakdown of each rank's time, and the steps that were added."""
        all_steps = [[] for _ in range(dist.get_world_size())]
        dist.all_gather_object(all_steps, [record for _, record in self._steps])
        sums = [sum_of(records) for records in all_steps]
        self.tell(line)
        for rank, record in enumerate(sums):
            self.tell(f"  rank {rank} (pipeline {record['pipeline']}, stage {record['stage']}): "
                      f"{breakdown_text(record, len(self._steps))}")
        for step, (rows, _) in enumerate(self._steps):
            self._write({"event": "step", "epoch": figures["epoch"], "step": step + 1,
                         "rows": rows, "ranks": [records[step] for records in all_steps]})
        self._write({"event": "epoch", **figures, "steps": len(self._steps), "ranks": sums})
        self._steps.clear()

    def end(self, seconds, accuracy, mib):
        memory = [0.0] * dist.get_world_size()
        dist.all_gather_object(memory, mib)
        self.tell(f"{seconds:.1f} s of training, test accuracy {100 * accuracy:.2f} %, at most "
                  f"{max(memory):.0f} MiB a rank")
        self._write({"event": "result", "ranks": dist.get_world_size(), "seconds": seconds,
                     "test_accuracy": accuracy, "memory_mib": memory})
