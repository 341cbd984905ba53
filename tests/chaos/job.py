"""A job under bfrun, and what the diaries of its processes (train.py) say."""

import collections
import json
import re
import subprocess
import threading
import time

Step = collections.namedtuple("Step", "t step epoch group size samples")
Group = collections.namedtuple("Group", "t ranks lost")
ENDS = re.compile(r"bfrun: rank (\d+) on host \S+ \(pid (\d+)\) (was killed by .*|exited with .*)")


class Process:
    """One that was started as a rank, the first or again."""

    def __init__(self, path):
        self.slot, self.pid = map(int, path.stem.split("-"))
        self.path = path
        self.file = path.open()
        self.rest = ""
        self.began = self.ready = self.entered = self.member = self.accuracy = None
        self.steps: list[Step] = []
        self.is_stopped = self.has_ended = False

    def lines(self):
        *lines, self.rest = (self.rest + self.file.read()).split("\n")
        return [json.loads(line) for line in lines]

    def stack(self):
        """The place in the script where it stood when it was asked by SIGUSR2."""
        return self.path.with_suffix(".stack").read_text()

    def first_step(self, condition):
        """The time of the first step for which it holds, or None."""
        return next((step.t for step in self.steps if condition(step)), None)


class Job:
    """The ranks' processes, the groups that they formed, and the words of all."""

    def __init__(self, command, folder, environment, ranks):
        self.folder, self.ranks = folder, ranks
        self.processes: dict[str, Process] = {}
        self.groups: dict[int, Group] = {}
        self.epochs = None
        self.output: list[tuple[float, str]] = []
        self.ends: dict[int, tuple[float, str]] = {}
        """When bfrun told of a process's end, and how it ended."""
        self.begin = time.monotonic()
        self.bfrun = subprocess.Popen(command, env=environment, text=True, errors="replace",
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.bfrun.stdout:
            now = time.monotonic()
            self.output.append((now, line))
            if end := ENDS.match(line):
                self.ends[int(end[2])] = now, end[3].strip()

    def poll(self):
        """Reads what is new. Returns whether the job runs."""
        runs = self.bfrun.poll() is None
        if not runs:
            self._reader.join(5)
        for path in self.folder.glob("*.jsonl"):
            if path.name not in self.processes:
                self.processes[path.name] = Process(path)
            process = self.processes[path.name]
            for line in process.lines():
                self._take(process, line)
            process.has_ended |= process.pid in self.ends
        return runs

    def _take(self, process, line):
        what = line["what"]
        if what == "step":
            process.steps.append(Step(*(line[name] for name in Step._fields)))
        elif what in ("moved", "entered"):
            process.member = line["member"]
            if what == "entered":
                process.entered = line["t"]
            known = self.groups.get(line["group"])
            if known is None or line["t"] < known.t:
                self.groups[line["group"]] = Group(line["t"], line["ranks"], line["lost"])
        elif what == "done":
            process.accuracy, self.epochs = line["accuracy"], line["epochs"]
        else:
            setattr(process, what, line.get(what, line["t"]))

    def end(self):
        """Ends it where it runs."""
        if self.bfrun.poll() is None:
            self.bfrun.terminate()
            self.bfrun.wait(20)

    def alive(self):
        """The processes that have not ended, as far as is known."""
        return [each for each in self.processes.values() if not each.has_ended]

    def is_whole(self):
        """Whether all ranks train together, one process each."""
        alive = self.alive()
        return (len(alive) == self.ranks and not any(each.is_stopped for each in alive)
                and all(each.steps and each.steps[-1].size == self.ranks for each in alive)
                and len({each.steps[-1].group for each in alive}) == 1)

    def steps(self):
        return [step for each in self.processes.values() for step in each.steps]

    def last_step(self):
        return max((each.steps[-1].t for each in self.processes.values() if each.steps),
                   default=self.begin)

    def rate(self, before_epoch):
        """Samples trained per second, from the first step to the last one before that epoch."""
        steps = [step for step in self.steps() if step.epoch < before_epoch]
        times = [step.t for step in steps]
        return sum(step.samples for step in steps) / (max(times) - min(times))

    def accuracies(self):
        return {each.accuracy for each in self.processes.values() if each.accuracy is not None}
