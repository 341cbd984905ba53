"""Jobs of which some may fail: what the others measured stays."""

import contextlib
import sys

from rich.console import Console
from rich.progress import Progress

from bfbench import INTERRUPTED
from bfbench.launch import LaunchFailed
from bfbench.records import merge_not_run


class Attempts:
    """Runs jobs; lists those that failed, each with its reason."""

    def __init__(self):
        self.code = 0
        """What the command ends with."""
        self._not_run = []

    def make(self, what, job, *words):
        """What `job(*words)` returns; nothing if it fails, which `what` then says of it."""
        try:
            return job(*words)
        except LaunchFailed as error:
            print(error, file=sys.stderr)
            self.code = self.code or 1
            self._not_run.append({**what, "not_run": error.last_words})
            return []

    @contextlib.contextmanager
    def until_interrupted(self):
        """Ctrl-C ends the block, not the command."""
        try:
            yield
        except KeyboardInterrupt:
            self.code = INTERRUPTED
            self._not_run.append({"op": "the rest", "not_run": "interrupted"})

    @contextlib.contextmanager
    def progress(self, total):
        """(tell, advance) of a bar on the terminal; Ctrl-C ends the block, not the command."""
        console = Console(stderr=True)
        with self.until_interrupted(), Progress(console=console, transient=True) as bar:
            task = bar.add_task("", total=total)
            yield (lambda text: bar.update(task, description=text)), (lambda: bar.advance(task))

    def not_run(self):
        """Each reason once, however many starts had it."""
        return merge_not_run([self._not_run])
