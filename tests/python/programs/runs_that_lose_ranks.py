"""The training of lost_rank.py's ranks: a small model with each kind of optimizer."""

EQUAL = {"gradients", "everybody", "closure", "amid", "callback", "late"}
"""The optimizers whose models are equal in the end."""
OWN_GROUPS: list[int] = []
"""The sizes of the groups that the program's own algorithm has begun anew with."""


def register_own(bf) -> None:
    """An algorithm of a program's own, which finds its group and its state anew."""

    @bf.register_algorithm
    class Own(bf.Algorithm):
        name = "own"
        state = ("last",)
        scalars = {"rounds": 0.0}

        def restart(self):
            assert all(not bucket.state["last"].any() for bucket in self.buckets)
            OWN_GROUPS.append(self.size)

        def step(self, round, buckets):
            assert self.size == bf.size() and self.rank == bf.rank()
            self.scalars["rounds"] += 1
            for bucket in buckets:
                self.local_step(bucket)
                self.average(bucket)
                bucket.state["last"].copy_(bucket.values)


class Run:
    """A model and its optimizer."""

    def __init__(self, bf, torch, name: str):
        self.bf, self.torch, self.name = bf, torch, name
        self.model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.Tanh(),
                                         torch.nn.Linear(64, 3))
        bf.broadcast_parameters(self.model.state_dict(), 0)
        adam = name in ("gradients", "callback")
        plain = (torch.optim.Adam(self.model.parameters(), lr=0.01) if adam else
                 torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.5))
        self.optimizer = self.wrap(plain)
        self.losses: list[float] = []
        self.truth = torch.randn(20, 3, generator=torch.Generator().manual_seed(7))

    def wrap(self, plain):
        bf, model = self.bf, self.model
        if self.name in ("gradients", "amid", "callback", "closure"):
            return bf.DistributedGradientAllreduceOptimizer(plain, model)
        if self.name == "awc":
            return bf.DistributedAdaptWithCombineOptimizer(plain, model)
        if self.name == "in_backward":
            return bf.DecentralizedOptimizer(plain, model, "adapt_then_combine",
                                             schedule="one-peer-exponential",
                                             step_in_backward=True)
        if self.name == "tracking":
            return bf.DecentralizedOptimizer(plain, model, "gradient_tracking")
        if self.name == "put":
            return bf.DistributedWinPutOptimizer(plain, model)
        if self.name == "get":
            return bf.DistributedPullGetOptimizer(plain, model)
        if self.name in ("win_put", "async_push_sum"):
            return bf.DecentralizedOptimizer(plain, model, self.name)
        if self.name == "own":
            register_own(bf)
            return bf.DecentralizedOptimizer(plain, model, "own")
        if self.name == "late":
            return bf.DecentralizedOptimizer(plain, model, "local_sgd",
                                             num_steps_per_communication=10)
        kind = (bf.CommunicationType.allreduce if self.name == "everybody" else
                bf.CommunicationType.neighbor_allreduce)
        return bf.DistributedAdaptThenCombineOptimizer(plain, model, communication_type=kind)

    def loss(self, data):
        return self.torch.nn.functional.mse_loss(self.model(data), data @ self.truth)

    def evaluate(self, data):
        self.optimizer.zero_grad()
        loss = self.loss(data)
        loss.backward()
        return loss

    def step(self, data) -> None:
        if self.name == "closure":
            loss = self.optimizer.step(lambda: self.evaluate(data))
        else:
            loss = self.evaluate(data)
            self.optimizer.step()
        self.losses.append(loss.item())

    def finish(self) -> None:
        self.optimizer.finish()
        flat = self.torch.cat([each.detach().reshape(-1) for each in self.model.parameters()])
        spread = (self.bf.allreduce(flat) - flat).abs().max().item()
        assert self.losses[-1] < 0.7 * self.losses[0], (self.name, self.losses)
        assert spread <= (0 if self.name in EQUAL else 0.5), (self.name, spread)
