"""Jobs that live at the same time and take turns, each in processes of its own."""

import json
import os
import subprocess
import sys
import tempfile
import threading

from bfbench.launch import LONGEST_END_SEC, WORKERS, DeadlinePassed, LaunchFailed, last_words_of


class Side:
    """A job whose ranks take a turn when they are told to.

    Meanwhile each rank waits for a word in a pipe of its own, `words.<rank>` of the folder that
    --words names, and leaves its core to the others. Rank 0 prints a record for each word, and one
    when the job is ready, which is `first`.
    """

    def __init__(self, launcher, ranks, worker, *options, prefix=()):
        self._folder = tempfile.TemporaryDirectory()
        folder = self._folder.name
        self._pipes = []
        for rank in range(ranks):
            os.mkfifo(f"{folder}/words.{rank}")
            # The pipe is open for reading too: opening waits for nobody, and writing to a rank that
            # has gone raises no signal.
            self._pipes.append(os.open(f"{folder}/words.{rank}", os.O_RDWR))
        self._longest_sec = launcher.longest_sec
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 close() does
        self._words = list(map(str, launcher.words(
            ranks, *prefix, sys.executable, "-m", f"{WORKERS}.{worker}",
            "--store", f"{folder}/store", "--words", folder, *options)))
        self._process = subprocess.Popen(self._words, stdout=subprocess.PIPE, stderr=self._errors,
                                         text=True, env=launcher.environment)
        try:
            self.first = self._hear()
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def tell(self, word):
        """The word that rank 0 prints when all ranks have done what the word says."""
        for pipe in self._pipes:
            os.write(pipe, f"{word}\n".encode())
        return self._hear()

    def _hear(self):
        late = threading.Event()

        def end_late():
            late.set()
            self._process.terminate()

        timer = threading.Timer(self._longest_sec, end_late)
        timer.daemon = True
        timer.start()
        try:
            for line in self._process.stdout:
                if line.startswith("{"):
                    return json.loads(line)
        finally:
            timer.cancel()
        code = self._process.wait()
        self._errors.seek(0)
        errors = self._errors.read()
        if late.is_set():
            raise DeadlinePassed(self._words, self._longest_sec, errors)
        raise LaunchFailed(f"'{' '.join(self._words)}' ended with code {code}:\n{errors[-2000:]}",
                           last_words_of(errors))

    def close(self):
        """Ends the job, if it has not ended."""
        for pipe in self._pipes:
            os.close(pipe)  # the end of what its ranks read
        self._pipes = []
        try:
            self._process.terminate()  # launchers then end their ranks
            self._process.wait(timeout=LONGEST_END_SEC)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()
        self._folder.cleanup()
