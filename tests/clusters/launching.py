"""An environment without marks of a launcher, and free ports, for tests that start programs."""

import contextlib
import os
import socket

OF_LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                "MASTER_PORT", "OMP_NUM_THREADS")
BEGINS_OF_LAUNCHERS = ("BFRUN_", "OMPI_COMM", "PMIX_", "PET_", "SLURM_", "TORCHELASTIC_")


def clean_environment():
    own = {name: value for name, value in os.environ.items()
           if name not in OF_LAUNCHERS and not name.startswith(BEGINS_OF_LAUNCHERS)}
    return {**own, "BLUEFOG_TIMEOUT": "60"}


def free_ports(count):
    with contextlib.ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
