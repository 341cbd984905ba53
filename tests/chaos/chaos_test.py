#!/usr/bin/env python3
"""Trains on Fashion-MNIST while ranks are killed, stopped and started again, at random.

    chaos_test.py [--ranks 4] [--minutes 10] [--seed 1] [--algorithm NAME] [--bfrun BFRUN]
    chaos_test.py --kinds kill --every 60      goodput at a kill a minute

First the same training runs undisturbed, for as many epochs as fit into the minutes, then with
events: both must end well, at accuracies that are a point apart at most, and leave no process, file
or socket behind; all ranks train together again after each event, no rank ends that nobody ended,
and no step takes longer than three quarters of BLUEFOG_TIMEOUT. A table shows each event.
"""

import argparse
import contextlib
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

import leftovers
import table
from events import KINDS, LEAST, Disturber
from job import Job

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
END_SECONDS = 60
"""A job has so long to end after its last step, and to be whole after the last event."""


class Failure(Exception):
    """The job cannot go on."""


def kinds_of(text):
    kinds = text.split(",")
    if not set(kinds) <= set(KINDS):
        raise argparse.ArgumentTypeError(f"expected some of {','.join(KINDS)}, found '{text}'")
    return kinds


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--algorithm", help="by name; adapt-then-combine where it is not given")
    parser.add_argument("--gap", type=float, default=12, help="mean seconds between events")
    parser.add_argument("--kinds", type=kinds_of, default=KINDS,
                        help="of events at random, as kill,stop; default: all")
    parser.add_argument("--every", type=float, metavar="SECONDS",
                        help="an event every so many seconds, in place of --gap")
    parser.add_argument("--timeout", type=float, default=20, help="BLUEFOG_TIMEOUT")
    parser.add_argument("--points", type=float, default=1,
                        help="of accuracy that may be lost, in percent")
    parser.add_argument("--respawn", type=int, default=10000, help="restarts that bfrun has")
    parser.add_argument("--events", help="these alone, in this order, as kill,stop,out; training "
                        "waits for them, for --epochs of --samples")
    parser.add_argument("--least", type=float, metavar="PERCENT",
                        help="the accuracy that suffices, in place of an undisturbed run")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--samples", type=int)
    parser.add_argument("--bfrun", default=str(ROOT / "build/release/tools/bfrun/bfrun"))
    arguments = parser.parse_args()
    if arguments.least is not None and arguments.epochs is None:
        parser.error("--least: expected --epochs, which an undisturbed run would tell")
    return arguments


def start(arguments, folder, epochs, pause_from):
    """A job whose diaries are in the folder, and whose temporary files in one within."""
    (folder / "temporary").mkdir(parents=True)
    environment = dict(os.environ, TMPDIR=str(folder / "temporary"), PYTHONDONTWRITEBYTECODE="1",
                       BLUEFOG_TIMEOUT=str(arguments.timeout),
                       BLUEFOG_STALL_WARNING=str(arguments.timeout / 4))
    environment[leftovers.MARK] = str(folder)
    environment["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "cache")  # torch makes it at once
    command = [arguments.bfrun, "-np", str(arguments.ranks), "--min-np", str(LEAST)]
    command += ["--respawn", str(arguments.respawn)] if arguments.respawn else []
    command += [sys.executable, str(HERE / "train.py"), "--folder", str(folder)]
    options = {"seed": arguments.seed, "algorithm": arguments.algorithm, "epochs": epochs,
               "samples": arguments.samples, "seconds": arguments.minutes * 60,
               "pause-from": pause_from}
    for name, value in options.items():
        command += [f"--{name}", str(value)] if value is not None else []
    return Job(command, folder, environment, arguments.ranks)


def watch(job, disturber, timeout):
    """Until the job has ended. Raises Failure where nobody makes a step any more."""
    quiet_since = None
    while job.poll():
        time.sleep(0.02)
        if disturber:
            disturber.poll()
            if disturber.has_ended and quiet_since is None:
                quiet_since = time.monotonic()
            if quiet_since and not disturber.stopped and job.is_whole():
                (job.folder / "quiet").touch()
        check_progress(job, disturber, timeout, quiet_since)


def check_progress(job, disturber, timeout, quiet_since):
    now = time.monotonic()
    limit = timeout * 3 / 4
    has_begun = any(each.steps for each in job.processes.values())
    has_ended = bool(job.accuracies())
    last = max(job.last_step(), disturber.grace() if disturber else 0)
    if has_ended or not has_begun:
        limit = END_SECONDS + timeout
    if now - last > limit:
        raise Failure(f"no rank has completed a step for {now - job.last_step():.1f} s")
    waits = quiet_since and not (job.folder / "quiet").exists() and not disturber.stopped
    if waits and now - max(quiet_since, disturber.woken) > END_SECONDS + timeout:
        raise Failure("all ranks have not come to train together again after the last event")


def who_waits(job):
    """Says where each process stands."""
    now = time.monotonic()
    for each in job.alive():
        with contextlib.suppress(ProcessLookupError):
            os.kill(each.pid, signal.SIGCONT)
            os.kill(each.pid, signal.SIGUSR2)
    time.sleep(1)
    for each in sorted(job.alive(), key=lambda each: each.slot):
        last = f"step {each.steps[-1].step}, {now - each.steps[-1].t:.1f} s ago" \
            if each.steps else "no step"
        print(f"rank {each.slot} (pid {each.pid}, number {each.member}): {last}"
              f"{', stopped' if each.is_stopped else ''}")
        print(*each.stack().splitlines()[1:8], sep="\n")
    if job.groups:
        print("Who waits for whom; ranks from 0 on have the numbers "
              f"{job.groups[max(job.groups)].ranks}:")
    print(*(line for when, line in job.output if "waiting for" in line and
            when > job.last_step()), sep="")


def run(name, arguments, temporary, epochs, disturbs):
    """One job. Returns it, its events, and what is wrong with it."""
    folder = temporary / name
    kinds = arguments.events.split(",") if arguments.events else None
    pause_from = (0 if kinds else epochs - 1) if disturbs else None
    before = leftovers.now(folder)
    job = start(arguments, folder, epochs, pause_from)
    disturber = None
    if disturbs:
        disturber = Disturber(job, random.Random(arguments.seed), 2 if kinds else arguments.gap,
                              arguments.timeout, kinds, pause_from, arguments.kinds,
                              arguments.every)
    problems = []
    try:
        watch(job, disturber, arguments.timeout)
        if job.bfrun.returncode != 0:
            problems.append(f"expected exit code 0, found {job.bfrun.returncode}")
    except Failure as failure:
        problems.append(str(failure))
        who_waits(job)
    finally:
        job.end()
    left = leftovers.after(folder, before)
    if left:
        problems.append(f"left behind: {', '.join(left)}")
    events = disturber.events if disturber else []
    problems += strange_ends(job, events)
    return job, events, [f"{name}: {each}" for each in problems]


def strange_ends(job, events):
    """Processes that have ended, and ranks that were lost, by no event."""
    job.poll()
    ways = {event.process.pid: "exited" if event.kind == "out" else "was killed by signal 9"
            for event in events if event.ends_process}
    for pid, (when, how) in job.ends.items():
        if not how.startswith(ways.get(pid, "?")):
            yield f"pid {pid} {how}, {when - job.begin:.1f} s after the start, by no event"
    lost = job.groups[max(job.groups)].lost if job.groups else []
    known = {event.member for event in events if event.ends_process}
    strange = [f"rank {rank} ({cause})" for rank, _, cause, *_ in lost if rank not in known]
    if len(strange) > sum(event.kind == "kill" and event.member is None for event in events):
        yield f"lost by no event: {', '.join(strange)}"


def compare(calm, wild, arguments, problems):
    wild_is = 100 * max(wild.accuracies())
    if len(wild.accuracies()) > 1:
        problems.append(f"expected one accuracy on all ranks, found {wild.accuracies()}")
    if calm is None:
        least = arguments.least
        print(f"accuracy {wild_is:.2f} %")
    else:
        calm_is = 100 * max(calm.accuracies())
        least = calm_is - arguments.points
        print(f"accuracy {wild_is:.2f} %, undisturbed {calm_is:.2f} %")
    if wild_is < least:
        problems.append(f"expected an accuracy of at least {least:.2f} %")


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # the job ends first
    leftovers.enter_own_place()
    arguments = parse_arguments()
    if not DATA.exists():
        print("SKIPPED: dataset-fashion-mnist is not installed")
        return 77
    with tempfile.TemporaryDirectory(prefix="chaos_") as temporary:
        return disturb(arguments, pathlib.Path(temporary))


def disturb(arguments, temporary):
    calm, problems, epochs = None, [], arguments.epochs
    if arguments.least is None:
        calm, _, problems = run("undisturbed", arguments, temporary, epochs, False)
        epochs = calm.epochs
    if not problems:
        print(f"{arguments.ranks} ranks, {epochs} epochs, seed {arguments.seed}", flush=True)
        wild, events, problems = run("disturbed", arguments, temporary, epochs, True)
        rows = table.rows_of(wild, events)
        table.print_table(wild, rows)
        problems += [f"event at {row.event.at - wild.begin:.1f} s, {row.kind}: {what}"
                     for row in rows for what in table.missing(row, rows)]
        if wild.accuracies():
            compare(calm, wild, arguments, problems)
        if calm and not arguments.events:  # else training has waited for them
            last = epochs - 1  # in which ranks wait until all are there
            goodput, undisturbed = wild.rate(last), calm.rate(last)
            print(f"goodput {goodput:.0f} samples per second with {len(events)} events, "
                  f"undisturbed {undisturbed:.0f} ({goodput / undisturbed:.1%})")
        if problems:
            print("".join(line for _, line in wild.output[-100:]))
    else:
        print("".join(line for _, line in calm.output[-100:]))
    if not leftovers.is_own():
        print("Neither sockets nor /dev/shm were looked at: no place of its own (unshare, ip)")
    for each in problems:
        print(f"chaos: {each}")
    print(f"chaos: {'failed' if problems else 'fine'} (seed {arguments.seed})")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
