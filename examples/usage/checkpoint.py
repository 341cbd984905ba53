"""Training that goes on where another run stopped, bit for bit: each rank has a file of its own."""

import torch

import bluefog_cpp.torch as bf


class Training:
    def __init__(self):
        self.model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.optimizer = bf.DistributedAdaptThenCombineOptimizer(optimizer, self.model)

    def make_steps(self, first, last):
        for step in range(first, last):
            torch.manual_seed(100 * step + bf.rank())
            x = torch.randn(32, 2)
            self.optimizer.zero_grad()
            torch.nn.functional.mse_loss(self.model(x), x.sum(1, keepdim=True)).backward()
            self.optimizer.step()
        self.optimizer.finish()


bf.init()
torch.manual_seed(0)
path = f"checkpoint.rank{bf.rank()}.pt"
whole = Training()
whole.make_steps(0, 3)
torch.save(
    {"step": 3, "model": whole.model.state_dict(), "optimizer": whole.optimizer.state_dict()}, path
)
whole.make_steps(3, 6)

resumed = Training()  # as in another process
found = torch.load(path)
resumed.model.load_state_dict(found["model"])
resumed.optimizer.load_state_dict(found["optimizer"])
resumed.make_steps(found["step"], 6)
is_same = torch.equal(resumed.model.weight, whole.model.weight)
print(
    f"rank {bf.rank()}: resumed after step {found['step']}, {'the same' if is_same else 'other'} weights"
)
