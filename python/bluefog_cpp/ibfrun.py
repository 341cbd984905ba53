"""`ibfrun start -np N` and `ibfrun stop`: ranks as IPython engines, for notebooks.

In the notebook:

    import ipyparallel
    engines = ipyparallel.Client(profile="bluefog")[:]    # engine i is rank i

and then `%%px` cells, which run on all ranks. Needs ipyparallel.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from typing import NoReturn

PROFILE = "bluefog"


def _fail(text: str) -> NoReturn:
    sys.exit(f"ibfrun: {text}")


def _folder() -> pathlib.Path:
    """The folder of the profile; made where there is none."""
    try:
        import ipyparallel  # noqa: F401 asked for by name
        from IPython.core.profiledir import ProfileDir
        from IPython.paths import get_ipython_dir
    except ImportError as error:
        _fail(f"expected ipyparallel, which is not installed ({error}): pip install ipyparallel")
    return pathlib.Path(ProfileDir.create_profile_dir_by_name(get_ipython_dir(), PROFILE).location)


def _bfrun() -> str:
    beside = pathlib.Path(sys.executable).with_name("bfrun")
    found = str(beside) if beside.exists() else shutil.which("bfrun")
    return found or _fail(f"bfrun is neither in {beside.parent} nor on PATH")


def _is_alive(pid: int, word: str) -> bool:
    """Whether the process is there and still the one that was started (numbers are used again)."""
    try:
        command = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return False
    return word in command


def _running(state_file: pathlib.Path) -> dict[str, int]:
    """The processes of an earlier start that still run, by the word that their command line has."""
    if not state_file.exists():
        return {}
    pids: dict[str, int] = json.loads(state_file.read_text())
    return {word: pid for word, pid in pids.items() if _is_alive(pid, word)}


def _launch(command: list[str], log: pathlib.Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        # A session of its own: it outlives this command and its terminal.
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                start_new_session=True)


def _wait_for_engines(count: int, seconds: float, processes: list[subprocess.Popen[bytes]],
                      log: pathlib.Path) -> None:
    import ipyparallel
    deadline = time.monotonic() + seconds
    client: ipyparallel.Client | None = None
    while client is None or len(client.ids) < count:
        if any(process.poll() is not None for process in processes):
            raise RuntimeError(
                f"the engines or their controller have ended; their words are in {log}")
        if time.monotonic() > deadline:
            raise RuntimeError(f"expected {count} engines within {seconds:.0f} s, found "
                               f"{0 if client is None else len(client.ids)}; their words are in "
                               f"{log}")
        time.sleep(0.2)
        if client is None:
            # The controller may not have written its address yet.
            with contextlib.suppress(OSError, ipyparallel.error.TimeoutError):
                client = ipyparallel.Client(profile=PROFILE, timeout=5)
    client.close()


def start(count: int, bfrun_options: list[str], seconds: float = 120) -> None:
    """Starts a controller and `count` engines; returns when all have come."""
    folder = _folder()
    state_file, log = folder / "ibfrun.json", folder / "log" / "ibfrun.log"
    if _running(state_file):
        _fail("ranks are running already; ibfrun stop ends them")
    for stale in (folder / "security").glob("ipcontroller-*.json"):
        stale.unlink()
    log.parent.mkdir(exist_ok=True)
    log.write_bytes(b"")
    profile = f"--profile={PROFILE}"
    controller = _launch([sys.executable, "-m", "ipyparallel.controller", profile], log)
    engines = _launch([_bfrun(), "-np", str(count), *bfrun_options, sys.executable, "-m",
                       "bluefog_cpp.ibfrun", "engine"], log)
    state_file.write_text(json.dumps({"ipyparallel.controller": controller.pid,
                                      "bfrun": engines.pid}))
    try:
        _wait_for_engines(count, seconds, [controller, engines], log)
    except BaseException as error:
        stop()
        if isinstance(error, RuntimeError):
            _fail(str(error))
        raise
    print(f'{count} ranks are there: ipyparallel.Client(profile="{PROFILE}")')


def stop() -> bool:
    """Ends what `start` has started. False if nothing ran."""
    state_file = _folder() / "ibfrun.json"
    running = _running(state_file)
    for word in ("bfrun", "ipyparallel.controller"):
        if word in running:
            os.kill(running[word], signal.SIGTERM)
    deadline = time.monotonic() + 30
    while _still_there(running) and time.monotonic() < deadline:
        time.sleep(0.1)
    for word, pid in _still_there(running).items():
        print(f"ibfrun: {word} (pid {pid}) does not end; killing it", file=sys.stderr)
        os.kill(pid, signal.SIGKILL)
    state_file.unlink(missing_ok=True)
    return bool(running)


def _still_there(running: dict[str, int]) -> dict[str, int]:
    for pid in running.values():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)  # where it is our own child
    return {word: pid for word, pid in running.items() if _is_alive(pid, word)}


def _become_engine() -> None:
    """In each rank: the engine whose number is the rank."""
    os.execv(sys.executable, [sys.executable, "-m", "ipyparallel.engine", f"--profile={PROFILE}",
                              f"--IPEngine.id={os.environ.get('RANK', '0')}"])


def main() -> None:
    """The command `ibfrun`."""
    parser = argparse.ArgumentParser(prog="ibfrun", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="start|stop")
    starting = commands.add_parser("start", help="start ranks; further options go to bfrun")
    starting.add_argument("-np", type=int, required=True, metavar="N", help="number of ranks")
    commands.add_parser("stop", help="end them")
    commands.add_parser("engine")
    arguments, others = parser.parse_known_args()
    if arguments.command == "start":
        if arguments.np < 1:
            parser.error(f"-np: expected 1 or more, found {arguments.np}")
        start(arguments.np, others)
    elif others:
        parser.error(f"{arguments.command}: unknown options {' '.join(others)}")
    elif arguments.command == "stop":
        print("the ranks have ended" if stop() else "no ranks were running")
    else:
        _become_engine()


if __name__ == "__main__":
    main()
