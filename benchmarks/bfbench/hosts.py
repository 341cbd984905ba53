"""Hosts in network namespaces of this machine, whose links are limited, and jobs on them."""

import functools
import subprocess

from bfbench.launch import ENDS_WITH_THIS, LONGEST_JOB_SEC, ROOT, Launcher, output_of

NETNS = ROOT / "tests" / "hosts" / "netns.sh"
SET_RATE = ROOT / "tests" / "hosts" / "netns_rate.sh"
INTERFACE = "eth0"
# The burst of netns_rate.sh: as many bytes go out at once after a rest.
BUCKET_BYTES = 262144
SKIPPED = 77
# A loopback interface of the job's own, in which no other program's bytes count.
OWN_LOOPBACK = ("unshare", "--net", "--", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")


def why_none():
    """Why this machine can have no such hosts; empty if it can."""
    done = subprocess.run([NETNS, "-n", "2", "-r", "1gbit", "--", "true"], capture_output=True,
                          text=True, check=False, stdin=subprocess.DEVNULL)
    if done.returncode == 0:
        return ""
    said = (done.stdout if done.returncode == SKIPPED else done.stderr).strip().splitlines()
    reason = said[-1].removeprefix("SKIPPED: ") if said else f"code {done.returncode}"
    return f"no hosts in network namespaces: {reason}"


@functools.cache
def has_own_loopback():
    """Whether this machine lets jobs have one: for root, with `unshare` and `ip`."""
    try:
        return not subprocess.run([*OWN_LOOPBACK, "true"], capture_output=True, check=False,
                                  stdin=subprocess.DEVNULL).returncode
    except OSError:
        return False


def rate_words(mbit):
    """The rate as tc writes it."""
    return f"{round(mbit * 1000)}kbit"


def set_rate(mbit):
    """Limits what this host can send."""
    output_of([SET_RATE, rate_words(mbit)], None)


class LoopbackLauncher(Launcher):
    """Jobs whose bytes through the loopback interface are counted."""

    def words(self, ranks, *command):
        words = self.bfrun_words(ranks, *command)
        return [*ENDS_WITH_THIS, *(OWN_LOOPBACK if has_own_loopback() else ()), *words]


class HostLauncher(Launcher):
    """Jobs on `hosts` hosts of `local_ranks` ranks each, which can send `mbit` Mbit/s."""

    def __init__(self, build, hosts, local_ranks, mbit, longest_sec=LONGEST_JOB_SEC):
        super().__init__(build, longest_sec)
        self.hosts, self.local_ranks, self.mbit = hosts, local_ranks, mbit
        # The pause fills the bucket: a side with longer rests of its own had more of it.
        self.pause_ms = 1.5 * BUCKET_BYTES * 8 / (mbit * 1e6) * 1e3
        self.environment.update(GLOO_SOCKET_IFNAME=INTERFACE, OMPI_MCA_mpi_yield_when_idle="1")

    def words(self, ranks, *command):
        slots = ",".join(f"bfhost{host + 1}:{self.local_ranks}" for host in range(self.hosts))
        return [*ENDS_WITH_THIS, NETNS, "-n", self.hosts, "-r", rate_words(self.mbit), "--",
                *self.bfrun_words(ranks, "-H", slots, *command)]
