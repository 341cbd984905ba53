"""The part that workers that train have in common: torch's optimizer and DDP, percentiles."""

import torch

from bfbench.contestants import bucket_mib_of

DDP_FLAGS = {
    "--no-gradient-as-bucket-view": "DDP: gradients are copied into its buckets",
    "--static-graph": "DDP: the graph of the loss never changes",
    "--find-unused-parameters": "DDP: some parameters may get no gradient",
    "--broadcast-buffers": "DDP: broadcasts buffers in each step; the others leave them alone",
}
MOMENTUM = 0.9
QUANTILES = (50, 75, 90, 95)


def make_optimizer(parameters, lr=0.01, momentum=MOMENTUM):
    return torch.optim.SGD(parameters, lr, momentum=momentum)


def with_ddp(model, algorithm, gradient_as_bucket_view=True, broadcast_buffers=False, **options):
    """Wrapped as bfbench has DDP everywhere, with the buckets that the algorithm's name says;
    `train` may be told otherwise."""
    return torch.nn.parallel.DistributedDataParallel(
        model, bucket_cap_mb=bucket_mib_of(algorithm),
        gradient_as_bucket_view=gradient_as_bucket_view,
        broadcast_buffers=broadcast_buffers, **options)


def quantiles_of(seconds):
    """By name, of the seconds of steps."""
    return {f"p{q}": seconds.quantile(q / 100).item() for q in QUANTILES}
