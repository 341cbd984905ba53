"""The TrainJob's command, started with the variables that the Trainer gives to each pod."""

import re
import subprocess

from launching import free_ports
from manifests import ROOT, document


def start(trainer, node, port, environment):
    """The command of one pod, here: torchrun's variables, and a host of its own."""
    env = {entry["name"]: entry["value"] for entry in trainer["env"]}
    env |= {"PET_NNODES": str(trainer["numNodes"]), "PET_NODE_RANK": str(node),
            "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
            "PET_MASTER_ADDR": "localhost", "PET_MASTER_PORT": str(port),
            "BLUEFOG_HOST_ID": f"pod {node}"}
    command = [word.replace("/opt/bluefog_cpp", str(ROOT)) for word in trainer["command"]]
    return subprocess.Popen(command, env=environment | env, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def finish(pods):
    """(exit code, output, errors) of each; all are ended where one takes too long."""
    try:
        return [(pod.returncode, *words)
                for pod in pods for words in [pod.communicate(timeout=200)]]
    finally:
        for pod in pods:
            if pod.poll() is None:
                pod.terminate()  # torchrun ends its ranks
                pod.communicate(timeout=60)


def test_two_pods_train(environment):
    trainer = document("trainjob.yaml", "TrainJob")["spec"]["trainer"]
    port, = free_ports(1)
    pods = finish([start(trainer, node, port, environment) for node in range(trainer["numNodes"])])
    errors = "\n".join(errors for _, _, errors in pods)
    assert [code for code, _, _ in pods] == [0, 0], errors
    ranks = trainer["numNodes"] * trainer["numProcPerNode"]
    # Ranks of one pod write without a buffer: one's line may begin inside of another's.
    found = sorted(rank for _, output, _ in pods for rank in re.findall(r"rank (\d+):", output))
    assert found == [str(rank) for rank in range(ranks)]
    assert f"{ranks} ranks, started by torchrun" in errors
