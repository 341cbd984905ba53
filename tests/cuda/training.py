"""Trainings on a GPU give the bits of the same trainings on the CPU: one rank's part.

    bfrun -np 4 python tests/cuda/training.py

The model is made of products and differences of single elements, and its step sizes are powers of
two: a GPU and the CPU round those alike. Where ranks do not wait for each other they step by turns,
so that what each reads is known. The last line is a JSON object: by algorithm, how many elements
differ, on any rank. Exit code 1 where one does.
"""

import sys

import torch

import bluefog_cpp.torch as bf
import compared

STEPS = 6
IN_TURNS = ("win_put", "pull_get", "async_push_sum")
ALGORITHMS = ("gradient_allreduce", "adapt_then_combine", "adapt_with_combine", "gossip_pga",
              "local_sgd",
              "extra", "exact_diffusion", "d2", "gradient_tracking", "push_sum", "dmsgd",
              "decent_lam", "quasi_global_momentum", *IN_TURNS)
WITH_MOMENTUM = ("dmsgd", "decent_lam", "quasi_global_momentum")


def numbers(count, first):
    """The same for the same arguments, none of which is a short fraction."""
    return torch.arange(first, first + count, dtype=torch.float32).mul(0.7).sin()


class Model(torch.nn.Module):
    """Layers of one parameter each, of which only the last is not always used."""

    SIZES = (1000, 30, 5, 700)

    def __init__(self, seed):
        super().__init__()
        self.layers = torch.nn.ParameterList(
            [torch.nn.Parameter(numbers(size, seed + 10 * place)) for place,
             size in enumerate(self.SIZES)])

    def loss(self, inputs, uses_last):
        terms = [(layer * x - 0.5).square().sum() for layer, x in zip(self.layers, inputs)]
        return sum(terms if uses_last else terms[:-1])


def trained(algorithm, device):
    """This rank's parameters in the end, on the CPU."""
    rank = bf.rank()
    model = Model(100 * rank).to(device)
    momentum = 0.5 if algorithm in WITH_MOMENTUM else 0.0
    sgd = torch.optim.SGD(model.parameters(), lr=0.0625, momentum=0.5 - momentum, foreach=False)
    period = {"global_period_rounds": 2} if algorithm == "gossip_pga" else {}
    optimizer = bf.DecentralizedOptimizer(sgd, model, algorithm, bucket_bytes=2048,
                                          momentum=momentum, **period)

    def step(number):
        inputs = [numbers(size, 1000 * number + rank).to(device) for size in model.SIZES]
        optimizer.zero_grad()
        model.loss(inputs,
                   algorithm != "gradient_allreduce" or number % 2 == 0 or rank > 0).backward()
        optimizer.step()

    for number in range(STEPS):
        for turn in range(bf.size()) if algorithm in IN_TURNS else (rank,):
            if turn == rank:
                step(number)
            if algorithm in IN_TURNS:
                bf.barrier()
    optimizer.finish()
    return [layer.detach().cpu().clone() for layer in model.layers]


def main():
    device = compared.device_asked_for(__doc__)
    bf.init()
    if device.type == "cuda":
        device = compared.take_gpu(bf.local_rank())
        bf.use_device()
    different = {}
    for algorithm in ALGORITHMS:
        expected = trained(algorithm, torch.device("cpu"))
        count = compared.differing(trained(algorithm, device), expected)
        different[algorithm] = int(bf.allreduce(torch.tensor([float(count)]), average=False))
    code = compared.report(bf.rank(), different)
    bf.shutdown()
    return code


if __name__ == "__main__":
    sys.exit(main())
