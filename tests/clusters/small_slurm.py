"""A Slurm of two nodes on this machine, for as long as a `with` block lasts: its own daemons, on
the loopback interface, with a configuration, a key and a spool in a folder of their own."""

import contextlib
import getpass
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pytest

from launching import free_ports

# The ranks meet on the node that is first by its name, and look that up. Slurm has its own ideas of
# "localhost".
NODES = (socket.gethostname(), f"{socket.gethostname()}-other")
CPUS = 8  # of each node, whatever this machine has: nothing is bound to them
CONFIGURATION = """
ClusterName=bluefog_test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={ports[0]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser={user}
SlurmdUser={user}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
NodeName={nodes[0]} NodeHostname=this_machine NodeAddr=127.0.0.1 Port={ports[1]} CPUs={cpus}
NodeName={nodes[1]} NodeHostname=this_machine NodeAddr=127.0.0.1 Port={ports[2]} CPUs={cpus}
PartitionName=test Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
# Debian puts the daemons where only root's PATH looks.
PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])


class SmallSlurm:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.environment = {"SLURM_CONF": str(self.folder / "slurm.conf"), "PATH": PATH}
        self.daemons = []

    def write_files(self):
        for name in ("state", *(f"spool.{node}" for node in NODES)):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        (self.folder / "slurm.conf").write_text(CONFIGURATION.format(
            folder=self.folder, user=getpass.getuser(), nodes=NODES, cpus=CPUS,
            ports=free_ports(1 + len(NODES))))

    def start(self):
        munge = [f"--{name.replace('_', '-')}={self.folder / value}" for name, value in {
            "key_file": "munge.key", "socket": "munge.socket", "pid_file": "munged.pid",
            "log_file": "munged.log", "seed_file": "munged.seed"}.items()]
        # The folder belongs to the user alone; munged asks for one that everybody can enter.
        self.start_daemon("munged", "--force", "--foreground", *munge)
        self.wait_for("munged", (self.folder / "munge.socket").exists)
        self.start_daemon("slurmctld", "-D", "-i")
        for node in NODES:
            self.start_daemon("slurmd", "-D", "-N", node)
        self.wait_for("nodes", lambda: self.idle_nodes() == sorted(NODES))

    def start_daemon(self, *command):
        with (self.folder / f"{command[0]}.out").open("a") as log:
            self.daemons.append(subprocess.Popen(
                command, env={**os.environ, **self.environment}, stdin=subprocess.DEVNULL,
                stdout=log, stderr=subprocess.STDOUT))

    def idle_nodes(self):
        shown = subprocess.run(["sinfo", "--noheader", "--Node", "--states=idle", "--format=%N"],
                               env={**os.environ, **self.environment}, capture_output=True,
                               text=True, check=False, timeout=60)
        return sorted(shown.stdout.split())

    def wait_for(self, what, is_there):
        until = time.monotonic() + 60
        while not is_there():
            ended = [daemon.args[0] for daemon in self.daemons if daemon.poll() is not None]
            assert not ended and time.monotonic() < until, (
                f"{what} did not come; ended: {ended}\n{self.words()}")
            time.sleep(0.1)

    def words(self):
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.out")))

    def has_steps(self):
        """Whether processes of jobs are left, each of which has a socket in its node's spool."""
        return any(list((self.folder / f"spool.{node}").glob(f"{node}_*")) for node in NODES)

    def stop(self):
        """Jobs' processes end before the daemons that they report to, and munged last."""
        until = time.monotonic() + 20
        while self.has_steps() and time.monotonic() < until:
            time.sleep(0.1)
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in reversed(self.daemons):
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def submit(self, *words, environment):
        """(exit code, output of the job) of a batch script, awaited."""
        environment = {**environment, **self.environment, "PATH": self.path()}
        output = self.folder / "job.out"
        job = subprocess.run(
            ["sbatch", "--parsable", f"--output={output}", f"--chdir={self.folder}",
             *map(str, words)],
            env=environment, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
        try:
            code = self.code_of(job, environment)
        finally:
            subprocess.run(["scancel", "--quiet", job], env=environment, check=False,
                           timeout=60)
        return code, output.read_text()

    @staticmethod
    def code_of(job, environment):
        """Exit code of a job, awaited: sbatch's own --wait looks every ten seconds."""
        until = time.monotonic() + 240
        while True:
            shown = subprocess.run(["scontrol", "--oneliner", "show", "job", job], env=environment,
                                   capture_output=True, text=True, check=True, timeout=60).stdout
            fields = dict(word.split("=", 1) for word in shown.split() if "=" in word)
            if fields["JobState"] not in ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING"):
                return int(fields["ExitCode"].partition(":")[0])
            assert time.monotonic() < until, f"the job did not end: {shown}"
            time.sleep(0.2)

    @staticmethod
    def path():
        """Programs of the Python that runs this, torchrun among them, come first."""
        return os.pathsep.join([str(pathlib.Path(sys.executable).parent), PATH])


@contextlib.contextmanager
def small_slurm():
    missing = [name for name in ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
               if not shutil.which(name, path=PATH)]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)} (Debian: slurm-wlm, munge)")
    try:
        socket.getaddrinfo(NODES[0], None)
    except OSError as error:
        pytest.skip(f"this machine's own name, {NODES[0]}, has no address: {error}")
    # A test that is told to end takes its daemons and jobs with it.
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))
    with tempfile.TemporaryDirectory(prefix="bluefog_slurm.") as folder:
        slurm = SmallSlurm(folder)
        slurm.write_files()
        try:
            slurm.start()
            yield slurm
        finally:
            slurm.stop()
            signal.signal(signal.SIGTERM, before)
