"""Ranks may be lost, and others join: bfrun -np 2 --min-np 1 --respawn 3 python elastic_training.py"""

import torch

import bluefog_cpp.torch as bf

bf.init()
torch.manual_seed(0)
data = torch.randn(512, 2)
model = torch.nn.Linear(2, 1, bias=False)
bf.broadcast_parameters(model.state_dict(), 0)
optimizer = bf.DistributedAdaptThenCombineOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.1), model)
sampler = bf.ElasticSampler(data)
loader = torch.utils.data.DataLoader(data, batch_size=32, sampler=sampler)

bf.enter()  # a process that joins waits here to be taken in
for epoch in range(sampler.epoch, 20):
    sampler.set_epoch(epoch)
    for x in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)).backward()
        optimizer.step()  # goes on without a rank that is lost, and takes in one that waits
optimizer.finish()
print(f"rank {bf.rank()}: {model.weight.mean():g}")
