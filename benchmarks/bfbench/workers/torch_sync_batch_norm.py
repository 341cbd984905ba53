"""torch.nn.SyncBatchNorm's formulas over gloo: torch has the layer itself for GPUs only.

Step for step what torch/nn/modules/_functions.py does, with the operators that torch has on CPUs in
place of batch_norm_stats, batch_norm_gather_stats_with_counts, batch_norm_elemt,
batch_norm_backward_reduce and batch_norm_backward_elemt.
"""

import torch
import torch.distributed as dist


class TorchFormulas(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, weight, bias, layer):
        channels = input.shape[1]
        mean, variance = torch.batch_norm_update_stats(input, None, None, 0.0)
        count = torch.full((1,), input.numel() // channels, dtype=mean.dtype)
        combined = torch.cat([mean, (variance + layer.eps).rsqrt(), count])
        gathered = [torch.empty_like(combined) for _ in range(dist.get_world_size())]
        dist.all_gather(gathered, combined)
        means, deviations, counts = torch.stack(gathered).split([channels, channels, 1], dim=1)
        total = counts.sum()
        mean = (means * counts).sum(0) / total
        variances = deviations.pow(-2) - layer.eps + (means - mean).square()
        variance = (variances * counts).sum(0) / total
        layer.running_mean.lerp_(mean, layer.momentum)
        layer.running_var.lerp_(variance * (total / (total - 1)), layer.momentum)
        ctx.save_for_backward(input, weight, mean, variance, total)
        ctx.eps = layer.eps
        return torch.native_batch_norm(input, weight, bias, mean, variance, False, 0.0,
                                       layer.eps)[0]

    @staticmethod
    def backward(ctx, grad_output):
        input, weight, mean, variance, total = ctx.saved_tensors
        _, grad_weight, grad_bias = torch.ops.aten.native_batch_norm_backward(
            grad_output, input, weight, mean, variance, None, None, False, ctx.eps,
            [False, True, True])
        inverse = (variance + ctx.eps).rsqrt()
        combined = torch.cat([grad_bias, grad_weight / inverse])
        dist.all_reduce(combined)
        sum_dy, sum_dy_xmu = combined.split(input.shape[1])
        shape = [1, -1] + [1] * (input.dim() - 2)
        slope = (inverse.square() * sum_dy_xmu / total).view(shape)
        centred = input - mean.view(shape)
        grad_input = grad_output - (sum_dy / total).view(shape)
        grad_input.addcmul_(centred, slope, value=-1).mul_((inverse * weight).view(shape))
        return grad_input, grad_weight, grad_bias, None


class TorchSyncBatchNorm(torch.nn.BatchNorm1d):
    def forward(self, input):
        return TorchFormulas.apply(input, self.weight, self.bias, self)
