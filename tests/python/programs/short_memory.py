"""A rank that has no memory for a call raises that, the others hear of it in the same call, and the
calls after it are right: three ranks, of which rank 1 is short of memory once."""

import resource
import sys

import torch

import bluefog_cpp
import bluefog_cpp.torch as bf

SHORT = 1


def address_space() -> int:
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmSize"))


def attempt(call, step: int) -> str:
    """What became of `call`; rank 1 gets no new memory in the first step."""
    is_short = bf.rank() == SHORT and step == 1
    if is_short:
        resource.setrlimit(resource.RLIMIT_AS, (address_space(), -1))
    try:
        return f"{call():.6g}"
    except (bluefog_cpp.Error, MemoryError) as error:
        return type(error).__name__
    finally:
        if is_short:
            resource.setrlimit(resource.RLIMIT_AS, (-1, -1))


def main() -> None:
    bf.init()
    assert bf.size() == 3
    for _ in range(30):  # threads and memory that any call needs
        bf.neighbor_allreduce_(torch.ones(400_000))
        bf.barrier()

    def of_many(value):
        tensors = [torch.full((100_000,), value), torch.full((90_001,), value)]
        return lambda: bf.neighbor_allreduce_multi_(tensors)[1][-1].item()

    def out_of_place(value):
        tensor = torch.full((30_000_000,), value)
        return lambda: bf.neighbor_allreduce(tensor)[-1].item()

    def nonblocking(value):
        tensor = torch.full((31_000_000,), value)
        return lambda: bf.wait(bf.neighbor_allreduce_nonblocking(tensor))[-1].item()

    for make in (of_many, out_of_place, nonblocking):
        for step in (1, 2, 3):
            value = 10.0 * step  # on all ranks: their average is that value
            found = attempt(make(value), step)
            expected = [f"{value:.6g}"]
            if step == 1:
                expected = (["TransportError", "MemoryError"] if bf.rank() == SHORT
                            else ["PeerFailure"])
            if found not in expected:
                sys.exit(f"rank {bf.rank()}, {make.__name__}, step {step}: expected "
                         f"{' or '.join(expected)}, found {found}")
    print(f"rank {bf.rank()}: passed")


main()
