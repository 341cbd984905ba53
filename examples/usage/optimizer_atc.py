"""Three lines make a training loop decentralized: init, a broadcast, a wrapped optimizer."""

import torch

import bluefog_cpp.torch as bf

bf.init()
model = torch.nn.Linear(2, 1, bias=False)
bf.broadcast_parameters(model.state_dict(), root_rank=0)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = bf.DistributedAdaptThenCombineOptimizer(optimizer, model)

torch.manual_seed(bf.rank())  # each rank has data of its own
for _ in range(200):
    x = torch.randn(32, 2)
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
    optimizer.step()
optimizer.finish()
print(f"rank {bf.rank()}: {model.weight.mean():g}")
