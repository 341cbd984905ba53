"""The peer of syncbn: on one rank its formulas are torch's own batch normalisation."""

import torch
import torch.distributed as dist

from bfbench.workers.torch_sync_batch_norm import TorchSyncBatchNorm


def test_on_one_rank_they_are_batch_normalisation(tmp_path):
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0,
                            world_size=1)
    try:
        torch.manual_seed(0)
        layers = [make(4).double() for make in (TorchSyncBatchNorm, torch.nn.BatchNorm1d)]
        input = torch.randn(8, 4).double()
        results = []
        for layer in layers:
            x = input.clone().requires_grad_()
            with torch.no_grad():
                layer.weight.copy_(torch.arange(1.0, 5.0))
            y = layer(x)
            y.backward(torch.linspace(-1, 1, 32).view(8, 4).double())
            results.append((y, x.grad, layer.weight.grad, layer.bias.grad, layer.running_mean,
                            layer.running_var))
        for found, expected in zip(*results):
            assert torch.allclose(found, expected, rtol=0, atol=1e-12)
    finally:
        dist.destroy_process_group()
