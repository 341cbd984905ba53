"""Jobs of which some may fail: what the others measured stays."""

import contextlib
import sys

from rich.console import Console
from rich.progress import Progress

from bfbench import INTERRUPTED
from bfbench.launch import DeadlinePassed, LaunchFailed
from bfbench.records import merge_not_run


class Jobs:
    """Runs jobs; lists those that failed, each with its reason."""

    def __init__(self, starts=1):
        self.code = 0
        """The exit code that the command ends with."""
        self._starts = starts
        self._not_run = []
        self._cut_off = []
        self._given_up = []
        self._is_interrupted = False

    def make(self, what, job, *words):
        """The result of `job(*words)`; nothing if it fails, which is then said of `what`."""
        try:
            return job(*words)
        except LaunchFailed as error:
            self._list(what, error)
            return []

    def gather(self, what, job, *words):
        """The records of a launcher's `job(*words)`; if it fails, those that it had printed. One
        that did not come back is not started again. After Ctrl-C, too, what it had printed; the
        next job is then the end of `until_interrupted`."""
        if self._is_interrupted:
            raise KeyboardInterrupt
        if what in self._given_up:
            return []
        try:
            return job(*words)
        except KeyboardInterrupt as stop:
            self._is_interrupted = True
            return getattr(stop, "records", [])
        except LaunchFailed as error:
            self._list(what, error)
            if isinstance(error, DeadlinePassed):
                self._given_up.append(what)
            return error.records

    def _list(self, what, error):
        print(error, file=sys.stderr)
        self.code = self.code or 1
        self._not_run.append({**what, "not_run": error.last_words})

    @contextlib.contextmanager
    def until_interrupted(self):
        """Ctrl-C or SIGTERM ends the block, not the command."""
        try:
            yield
            if self._is_interrupted:
                raise KeyboardInterrupt
        except KeyboardInterrupt:
            self.code = INTERRUPTED
            self._cut_off = [{"op": "the rest", "not_run": "interrupted"}]

    @contextlib.contextmanager
    def progress(self, total):
        """(tell, advance) of a bar on the terminal; Ctrl-C ends the block, not the command."""
        console = Console(stderr=True)
        with self.until_interrupted(), Progress(console=console, transient=True) as bar:
            task = bar.add_task("", total=total)
            yield (lambda text: bar.update(task, description=text)), (lambda: bar.advance(task))

    def not_run(self):
        """Each reason once, and how many starts had it."""
        merged = merge_not_run([self._not_run])
        if self._starts == 1:
            return merged + self._cut_off
        return [{**item, "not_run": f"{item['not_run']} ({self._count_text(item)})"}
                for item in merged] + self._cut_off

    def _count_text(self, item):
        count = self._not_run.count(item)
        gave_up = any(item.items() >= what.items() for what in self._given_up)
        return f"{count} of {self._starts} starts" + (", not started again" if gave_up else "")
