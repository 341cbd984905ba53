"""Sides of one job that take turns: one that fails leaves the others their turns."""

import sys

import torch

import bluefog_cpp.torch as bf


def why_failed(action):
    """Why `action` has failed on some rank, in one line; empty where it ended well on all. Collective:
    no rank goes on with what another one cannot."""
    why = ""
    try:
        action()
    except Exception as error:  # of a peer's library: any
        why = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        print(f"rank {bf.rank()}: {why}", file=sys.stderr)
    fine = bf.allreduce(torch.tensor([0.0 if why else 1.0]))
    return "" if fine.item() == 1 else why or "it failed on another rank"
