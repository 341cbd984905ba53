"""Ranks whose data differ: rank i wants x = i, and i + 1 times as much as rank 0. Gradient tracking
comes to the minimiser of the mean, where averages of models alone stop beside it."""

import torch

import bluefog_cpp.torch as bf

bf.init()
target, weight = float(bf.rank()), 1.0 + bf.rank()
model = torch.nn.ParameterDict({"x": torch.zeros(1, dtype=torch.float64)})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = bf.DecentralizedOptimizer(optimizer, model, "gradient_tracking")

for _ in range(400):
    optimizer.zero_grad()
    (weight / 2 * (model["x"] - target).square()).backward()
    optimizer.step()
optimizer.finish()
print(f"rank {bf.rank()}: {model['x'].item():g}")
