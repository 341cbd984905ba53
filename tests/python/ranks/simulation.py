"""The same training with all ranks in one process: models, losses, optimizers and averages."""

import numpy
import torch

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "sgd_foreach": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "sgd_fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adam_fused": lambda p: torch.optim.Adam(p, lr=0.01, fused=True),
    "adamw_amsgrad": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True, foreach=True),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "adadelta": lambda p: torch.optim.Adadelta(p, lr=1.0),
    "adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "asgd": lambda p: torch.optim.ASGD(p, lr=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.01),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True),
    "rprop": lambda p: torch.optim.Rprop(p, lr=0.01),
}


def model_of(seed):
    """Two layers, and a parameter that no loss reaches."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(),
                                torch.nn.Linear(6, 2)).double()
    model.register_parameter("unused", torch.nn.Parameter(torch.ones(3, dtype=torch.float64)))
    return model


def loss_of(model, rank, step=0):
    generator = torch.Generator().manual_seed(100 * rank + step)
    data = torch.randn(8, 4, generator=generator, dtype=torch.float64)
    target = torch.randn(8, 2, generator=generator, dtype=torch.float64)
    return torch.nn.functional.mse_loss(model(data), target)


def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def assign(model, values):
    torch.nn.utils.vector_to_parameters(values, model.parameters())


class Simulation:
    """All ranks in this process, with plain optimizers."""

    def __init__(self, make, size, seed=0):
        self.models = [model_of(seed) for _ in range(size)]
        self.optimizers = [make(m.parameters()) for m in self.models]

    def gradients(self, step):
        self.zero_grad()
        self.add_gradients(step)

    def zero_grad(self):
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def add_gradients(self, step):
        for rank, model in enumerate(self.models):
            loss_of(model, rank, step).backward()

    def local_steps(self):
        for optimizer in self.optimizers:
            optimizer.step()

    def average(self, matrix):
        values = torch.stack([flat(m) for m in self.models])
        for model, mixed in zip(self.models, torch.as_tensor(matrix) @ values):
            assign(model, mixed)

    def average_gradients(self):
        for parameters in zip(*(m.parameters() for m in self.models)):
            if parameters[0].grad is not None:
                mean = sum(p.grad for p in parameters) / len(parameters)
                for p in parameters:
                    p.grad.copy_(mean)


def mixing(graph):
    """W of the graph, uniform weights."""
    size = graph.number_of_nodes()
    matrix = numpy.eye(size)
    for i, j in graph.edges:
        matrix[j, i] = 1.0
    return matrix / matrix.sum(axis=1, keepdims=True)


def train(model, optimizer, rank, steps):
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, rank, step).backward()
        optimizer.step()
