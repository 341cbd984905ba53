"""Events that meet ranks at random: they are killed, or stopped for a while."""

import contextlib
import os
import signal
import time

KINDS = ("kill", "stop", "out")
"""A stop is shorter than BLUEFOG_TIMEOUT; a rank that is out stops for so long that the others go
on without it."""
WEIGHTS = (60, 32, 8)
LEAST = 2
"""Ranks that go on in any case (bfrun --min-np)."""
CLOSE = 0.15
"""The share of events that follow another one at once."""


class Event:
    """One thing that happened to one process."""

    def __init__(self, kind, process, job, seconds):
        self.kind, self.process, self.seconds = kind, process, seconds
        self.at = time.monotonic()
        self.member = process.member if process.entered else None
        """Its number in the group; None where it had not joined yet."""
        self.group = max(job.groups)
        self.step = max(each.steps[-1].step for each in job.processes.values() if each.steps)
        self.others = [each for each in job.alive() if each.entered and each is not process]

    @property
    def ends_process(self):
        return self.kind in ("kill", "out")


class Disturber:
    """Makes events until a list of them is used up, or until the last epoch."""

    def __init__(self, job, random, gap, timeout, kinds, last_epoch, allowed=KINDS, every=None):
        self.job, self.random, self.gap, self.timeout = job, random, gap, timeout
        self.allowed = allowed
        """Kinds of events at random."""
        self.every = every
        """Seconds from one event to the next, in place of random ones."""
        self.kinds = kinds
        """Kinds that are left, each once all ranks train together; None: any, at any time."""
        self.last_epoch = last_epoch
        self.events: list[Event] = []
        self.stopped: list[tuple[float, Event]] = []
        self.woken = 0.0
        """When a stopped rank went on for the last time."""
        self.has_ended = False
        self.due = None
        self.next_kind = None
        self.is_close = False
        """Whether the next event follows the last one at once."""
        self.out_until = 0.0
        """Until when the others wait for one that is out: nothing but such an event comes then."""

    def poll(self):
        """Does what is due."""
        now = time.monotonic()
        for end, event in [each for each in self.stopped if each[0] <= now]:
            self.send(event.process, signal.SIGCONT)
            event.process.is_stopped = False
            self.woken = now
            self.stopped.remove((end, event))
        if self.due is None:  # nobody is started again before all have begun
            if self.job.is_whole():
                self.plan(now)
        elif self.kinds is None and self.epoch() >= self.last_epoch:
            self.has_ended = True
        elif not self.has_ended and now >= self.due and (self.kinds is None or
                                                         self.job.is_whole()):
            self.act()

    def epoch(self):
        return max(each.steps[-1].epoch for each in self.job.processes.values() if each.steps)

    def plan(self, now):
        """Chooses the next event, and its time."""
        self.is_close = (self.kinds is None and self.every is None
                         and self.random.random() < CLOSE)
        self.due = now + (self.every or (
            self.random.uniform(0, 0.3) if self.is_close else
            min(self.random.expovariate(1 / self.gap), 4 * self.gap)))
        if self.kinds is None:
            weights = [WEIGHTS[KINDS.index(kind)] for kind in self.allowed]
            self.next_kind = self.random.choices(self.allowed, weights)[0]
        elif self.kinds:
            self.next_kind = self.kinds.pop(0)
        else:
            self.has_ended = True

    def act(self):
        """The next event, as soon as there is somebody whom it may meet."""
        kind, now = self.next_kind, time.monotonic()
        free = [each for each in self.job.alive() if not each.is_stopped and each.began]
        members = [each for each in free if each.entered]
        if kind == "out" and len(members) < self.job.ranks:
            return
        if kind != "stop" and len(members) <= LEAST:  # processes that wait to join may be killed
            free = [each for each in free if not each.entered] if kind == "kill" else []
        if not free or (now < self.out_until and not self.is_close):
            return
        process = self.random.choice(sorted(free, key=lambda each: each.slot))
        seconds = {"kill": 0, "stop": self.random.uniform(1, min(5, self.timeout / 4)),
                   "out": 1.5 * self.timeout + 5}[kind]
        event = Event(kind, process, self.job, seconds)
        if not self.send(process, signal.SIGKILL if kind == "kill" else signal.SIGSTOP):
            return
        self.events.append(event)
        if kind == "out":
            self.out_until = event.at + 2 * self.timeout
        if kind == "kill":
            process.has_ended = True
        else:
            process.is_stopped = True
            self.stopped.append((event.at + seconds, event))
        self.plan(event.at + (seconds if self.kinds is not None else 0))

    def send(self, process, number):
        """False where the process has just ended by itself."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
            return True
        return False

    def grace(self):
        """Until when nobody needs to make a step, because a rank stands still."""
        return max((end for end, _ in self.stopped), default=0)
