"""The MPIJob's launcher and workers on hosts that tests/hosts/netns.sh makes:

    netns.sh -n 3 -- python mpijob_hosts.py BFRUN

Runs on the first of them, the launcher. The others run ssh servers by the configuration of the
image, and what the operator mounts lies in a folder of the test. Exit code 77: skipped."""

import contextlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

from manifests import CLUSTERS, ROOT, document

SSHD = "/usr/sbin/sshd"
# The names and variables of the operator for a job with this name.
DOMAIN = "bluefog-mpi.default.svc"
OF_OPERATOR = {"OMPI_MCA_orte_keep_fqdn_hostnames": "true",
               "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
               "OMPI_MCA_orte_set_default_slots": "2"}


def skip(reason):
    print(f"SKIPPED: {reason}")
    sys.exit(77)


def lay_out(work, workers):
    """Files as the operator and the image have them, on paths of this machine: mounts and names are
    private to netns.sh. @return the configuration of the ssh servers."""
    keys = work / "ssh"
    keys.mkdir()
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "521", "-N", "", "-f",
                    keys / "id_rsa"], check=True)
    shutil.copy(keys / "id_rsa.pub", keys / "authorized_keys")
    server = (CLUSTERS / "image/sshd_config").read_text()
    server = server.replace("/home/bluefog/.ssh", str(keys))
    server = server.replace("/opt/venv/bin", str(pathlib.Path(sys.executable).parent))
    (work / "sshd_config").write_text(server)
    client = work / "ssh_config.d"
    client.mkdir()
    (client / "bluefog.conf").write_text(
        (CLUSTERS / "image/ssh_config").read_text() + f"  IdentityFile {keys / 'id_rsa'}\n")
    subprocess.run(["mount", "--bind", client, "/etc/ssh/ssh_config.d"], check=True)
    with open("/etc/hosts", "a") as hosts:
        hosts.writelines(f"198.18.0.{number} {name}.{DOMAIN}\n"
                         for number, name in enumerate(workers, 2))
    return work / "sshd_config"


@contextlib.contextmanager
def folder_of_root_servers():
    """The ssh server of root asks for a folder, which the package's own start makes; that of
    another user, as in the image, does not."""
    folder = pathlib.Path("/run/sshd")
    is_there = folder.exists()
    folder.mkdir(mode=0o755, exist_ok=True)
    yield
    if not is_there:
        folder.rmdir()


def start_servers(workers, configuration, log, stack):
    for number, name in enumerate(workers, 2):
        server = subprocess.Popen(
            ["ip", "netns", "exec", f"bfhost{number}", "unshare", "--uts", "sh", "-c",
             f"hostname {name}; exec {SSHD} -D -e -f {configuration}"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        stack.callback(server.wait)
        stack.callback(server.terminate)


def wait_until_ready(workers):
    """Asks the ssh servers, as the readiness probe does."""
    for name in workers:
        until = time.monotonic() + 30
        while subprocess.run(["ssh", f"{name}.{DOMAIN}", "true"], check=False).returncode != 0:
            assert time.monotonic() < until, f"{name}: the ssh server does not answer"
            time.sleep(0.2)


def main():
    if not os.access(SSHD, os.X_OK):
        skip("there is no ssh server (Debian: openssh-server)")
    if importlib.util.find_spec("yaml") is None:
        skip("the package PyYAML is not installed")
    job = document("mpijob.yaml", "MPIJob")["spec"]
    slots, replicas = job["slotsPerWorker"], job["mpiReplicaSpecs"]["Worker"]["replicas"]
    workers = [f"bluefog-mpi-worker-{number}" for number in range(replicas)]
    launcher, = job["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        work = pathlib.Path(folder)
        hostfile = work / "hostfile"
        hostfile.write_text("".join(f"{name}.{DOMAIN} slots={slots}\n" for name in workers))
        log = stack.enter_context((work / "sshd.log").open("a"))
        stack.enter_context(folder_of_root_servers())
        start_servers(workers, lay_out(work, workers), log, stack)
        wait_until_ready(workers)
        places = {"bfrun": sys.argv[1], "/etc/mpi/hostfile": str(hostfile),
                  "python3": sys.executable}
        command = [places.get(word, word.replace("/opt/bluefog_cpp", str(ROOT)))
                   for word in launcher["command"]]
        variables = {entry["name"]: entry["value"] for entry in launcher["env"]}
        own = {name: value for name, value in os.environ.items()
               if name != "PRTE_MCA_plm_ssh_agent"}  # that of netns.sh, in place of ssh
        done = subprocess.run(
            command, env={**own, **OF_OPERATOR, "OMPI_MCA_orte_default_hostfile": str(hostfile),
                          **variables}, capture_output=True, text=True, check=False, timeout=200)
        print(done.stdout, done.stderr, (work / "sshd.log").read_text(), sep="\n")
    assert done.returncode == 0, f"exit code {done.returncode}"
    found = sorted(line.split(":")[0] for line in done.stdout.splitlines())
    assert found == [f"rank {rank}" for rank in range(slots * replicas)], found
    assert f"{slots * replicas} ranks on {replicas} hosts" in done.stderr


if __name__ == "__main__":
    main()
