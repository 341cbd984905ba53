"""The options --device and --no-cuda of all scripts that compute with tensors of models."""

import sys

import torch

import bluefog_cpp.torch as bf
from bluefog_cpp import UnsupportedError


def add_argument(parser):
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        help="cuda: each rank of a machine takes the next of its GPUs; default: that, where "
        "torch and this build of bluefog_cpp find one",
    )
    group.add_argument(
        "--no-cuda",
        action="store_const",
        dest="device",
        const="cpu",
        help="the same as --device cpu",
    )


def choose(arguments):
    """Collective, after init: the device of this rank's model and data."""
    if arguments.device == "cpu" or (arguments.device is None and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        found = (
            f"torch {torch.__version__}, which was built for the CPU alone"
            if torch.version.cuda is None
            else "no GPU that torch could use"
        )
        sys.exit(f"--device cuda: expected a torch with CUDA and a GPU, found {found}")
    device = torch.device("cuda", bf.local_rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)
    try:
        bf.use_device(device)
    except UnsupportedError as error:
        if arguments.device == "cuda":
            raise
        if bf.rank() == 0:
            print(f"on the CPU: {error}")
        return torch.device("cpu")
    return device


def synchronize(device):
    """Waits until all that was started on the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
