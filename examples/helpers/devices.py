"""What --device means, in all scripts that train."""

import sys

import torch

import bluefog_cpp.torch as bf


def add_argument(parser):
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu",
                        help="cuda: each rank of a machine takes the next of its GPUs")


def choose(arguments):
    """Collective, after init: the device of this rank's model and data."""
    if arguments.device == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        found = (f"torch {torch.__version__}, which was built for the CPU alone"
                 if torch.version.cuda is None else "no GPU that torch could use")
        sys.exit(f"--device cuda: expected a torch with CUDA and a GPU, found {found}")
    device = torch.device("cuda", bf.local_rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)
    bf.use_device(device)
    return device


def synchronize(device):
    """What was started on the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
