"""The shared parts of the scripts that compare a GPU with the CPU."""

import argparse
import json

import torch


def device_asked_for(description):
    """The device of the command line; the description names the script and says what it prints."""
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                        help="cpu compares the CPU with itself: what this script says without a "
                             "GPU")
    return torch.device(parser.parse_args().device)


def take_gpu(place):
    """Makes the GPU of the rank at `place` on its machine the current one: ranks may share one."""
    torch.cuda.set_device(place % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device())


def differing(found, expected):
    """How many elements differ between two lists of tensors."""
    return sum(int((a.cpu() != b).sum()) for a, b in zip(found, expected, strict=True))


def differences(call, device):
    """How many elements of what `call` gives differ between `device` and the CPU."""
    expected, found = call(torch.device("cpu")), call(device)
    if len(found) != len(expected) or any(tensor.device != device for tensor in found):
        raise AssertionError(f"{call.__name__}: expected {len(expected)} tensors on {device}, "
                             f"found {[str(tensor.device) for tensor in found]}")
    return differing(found, expected)


def report(rank, different, **more):
    """Prints the last line on rank 0. @return the exit code."""
    if rank == 0:
        print(json.dumps({"different": different, **more}), flush=True)
    return 1 if any(different.values()) else 0
