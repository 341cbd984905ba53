"""Python processes that begin with torch loaded, for programs that start many of them.

Loading torch takes 1.7 s of a core in each process. A server loads it once and forks a process for
each start. Whoever is started is a small client, which hands over its variables, folder and
streams, passes signals on, and ends as that process has ended:

    with preloaded.Server() as server:
        subprocess.run([bfrun, "-np", "4", *server.command(__file__, "--rank")],
                       env=server.environment)

Without TESTS_PRELOAD=1 (LEVEL=long, or by hand) processes start as usual.
"""

import array
import atexit
import contextlib
import ctypes
import gc
import json
import os
import pathlib
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import time

ADDRESS = "PRELOADED_ADDRESS"
NOTE = "BFRUN_EXIT_NOTE"
"""The variable of bfrun that names a descriptor which a rank inherits."""
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
MODULES = ("torch", "torch.utils.data", "bluefog_cpp.torch")
KEPT_S = 0.5
"""How long what a process has started may outlive it."""
KILLED = 1000
"""Added to the number of a signal, to tell it from an exit code."""


class Server:
    """Starts and ends the process that forks."""

    def __init__(self):
        self.environment = dict(os.environ)
        self._process = None
        self._folder = None

    def __enter__(self) -> "Server":
        if os.environ.get("TESTS_PRELOAD") != "1":
            return self
        self._folder = tempfile.TemporaryDirectory()
        address = str(pathlib.Path(self._folder.name) / "socket")
        self._process = subprocess.Popen([sys.executable, __file__, "--serve", address],
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         env={**os.environ, "OMP_NUM_THREADS": "1"})
        if self._process.stdout.read(1) != b"r":
            raise RuntimeError("expected a server that is ready, found one that has ended")
        self.environment[ADDRESS] = address
        return self

    def command(self, *words: str) -> list[str]:
        """The command that runs `python WORDS`; -m MODULE may stand in place of a file."""
        if self._process is None:
            return [sys.executable, *words]
        return [sys.executable, "-S", "-E", __file__, *words]

    def __exit__(self, *_) -> None:
        if self._process is not None:
            self._process.stdin.close()  # the server ends, and all that it has forked with it
            self._process.wait(30)
            self._folder.cleanup()


def run_client(words: list[str]) -> None:
    """Asks for a process, and ends as it ends."""
    signal.pthread_sigmask(signal.SIG_BLOCK, PASSED_ON)
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(os.environ[ADDRESS])
        numbers = [0, 1, 2]
        if note := os.environ.get(NOTE):
            numbers.append(int(note.split(":")[0]))
        request = json.dumps({"words": words, "environment": dict(os.environ),
                              "folder": os.getcwd(), "numbers": numbers}).encode()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", numbers))]
        line.sendmsg([len(request).to_bytes(4, "little")], rights)
        line.sendall(request)
        pid = read_number(line)
        for number in PASSED_ON:
            signal.signal(number, lambda number, _: os.kill(pid, number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, PASSED_ON)
        code = read_number(line)
    if code >= KILLED:
        with contextlib.suppress(OSError):  # SIGKILL has no handler
            signal.signal(code - KILLED, signal.SIG_DFL)
        os.kill(os.getpid(), code - KILLED)
    os._exit(code)


def read_number(line: socket.socket) -> int:
    text = line.recv(4, socket.MSG_WAITALL)
    if len(text) < 4:
        raise RuntimeError("expected a server of processes, found that it has ended")
    return int.from_bytes(text, "little")


class Forks:
    """The server: forks, and tells each client of the end of its process."""

    def __init__(self, address: str):
        self._selector = selectors.DefaultSelector()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(address)
        self._listening.listen(64)
        self._selector.register(self._listening, selectors.EVENT_READ, self._fork)
        self._selector.register(sys.stdin.fileno(), selectors.EVENT_READ, self._end)
        self._processes: dict[int, socket.socket] = {}
        """The client of each process."""
        self._left: list[tuple[float, int]] = []
        """When the groups of processes that have ended are killed: as by bfrun, what a rank has
        started ends with it, a moment later."""
        self._request = None
        self._has_ended = False

    def serve(self):
        """Returns None at the end, and in each forked process what it is to be."""
        while not self._has_ended and self._request is None:
            for key, _ in self._selector.select(0.1 if self._left else None):
                if self._selector.get_map().get(key.fd) is key:  # or one before has ended it
                    key.data()
                if self._request is not None or self._has_ended:
                    break
            self._kill_left()
        return self._request

    def _kill_left(self) -> None:
        while self._left and self._request is None and time.monotonic() > self._left[0][0]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._left.pop(0)[1], signal.SIGKILL)

    def _end(self) -> None:
        self._has_ended = True
        for pid in [*self._processes, *(pid for _, pid in self._left)]:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)

    def _fork(self) -> None:
        line, _ = self._listening.accept()
        length, rights, *_ = line.recvmsg(4, socket.CMSG_SPACE(16 * 4))
        descriptors = array.array("i")
        for *_, data in rights:
            descriptors.frombytes(data)
        size = int.from_bytes(length, "little")
        text = line.recv(size, socket.MSG_WAITALL)
        if len(length) < 4 or len(text) < size:  # the client was killed
            line.close()
            for each in descriptors:
                os.close(each)
            return
        request = json.loads(text)
        pid = os.fork()
        if pid == 0:
            os.setsid()
            self._request = request | {"descriptors": list(descriptors)}
            self._selector.close()
            for each in (self._listening, line, *self._processes.values()):
                each.close()
            return
        for each in descriptors:
            os.close(each)
        self._watch(pid, line)

    def _watch(self, pid: int, line: socket.socket) -> None:
        self._processes[pid] = line
        end = os.pidfd_open(pid)
        with contextlib.suppress(OSError):  # of a client that is gone, which is seen below
            line.sendall(pid.to_bytes(4, "little"))
        self._selector.register(end, selectors.EVENT_READ, lambda: self._bury(pid, end))
        self._selector.register(line, selectors.EVENT_READ, lambda: self._lose(pid, line))

    def _lose(self, pid: int, line: socket.socket) -> None:
        self._selector.unregister(line)  # the client is gone
        os.kill(pid, signal.SIGKILL)

    def _bury(self, pid: int, end: int) -> None:
        self._selector.unregister(end)
        os.close(end)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        self._left.append((time.monotonic() + KEPT_S, pid))
        line = self._processes.pop(pid)
        with contextlib.suppress(KeyError):
            self._selector.unregister(line)
        with contextlib.suppress(OSError):
            line.sendall((code if code >= 0 else KILLED - code).to_bytes(4, "little"))
        line.close()


def become(request: dict) -> None:
    """This process, which was forked, is the one that a client has asked for."""
    for wanted, found in zip(request["numbers"], request["descriptors"]):
        os.dup2(found, wanted)
    for found in set(request["descriptors"]) - set(request["numbers"]):
        os.close(found)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    script, *rest = request["words"]
    if script == "-m":
        sys.argv = rest
        run_to_end(lambda: runpy.run_module(rest[0], run_name="__main__", alter_sys=True))
    sys.argv = [script, *rest]
    sys.path[0] = str(pathlib.Path(script).resolve().parent)
    run_to_end(lambda: runpy.run_path(script, run_name="__main__"))


def run_to_end(script) -> None:
    """Ends with what Python and C do at an exit, but for the end of all modules, which copies all
    of the server's memory first."""
    code = 0
    try:
        script()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).exit(code)


def serve(address: str) -> None:
    for name in MODULES:
        __import__(name)
    forks = Forks(address)
    gc.freeze()
    os.write(sys.stdout.fileno(), b"r")
    request = forks.serve()
    if request is not None:
        become(request)


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(sys.argv[2])
    else:
        run_client(sys.argv[1:])
