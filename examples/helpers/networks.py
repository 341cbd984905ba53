"""Models: torchvision's by name, and a small one that needs no torchvision."""

import difflib

import torch
from torch.nn import functional


class SmallNet(torch.nn.Module):
    """Two convolutions and two dense layers, for grey images of `side` × `side` pixels."""

    LEAST_SIDE = 4

    def __init__(self, side, classes=10):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 16, 3, padding=1)
        self.conv2 = torch.nn.Conv2d(16, 32, 3, padding=1)
        self.fc1 = torch.nn.Linear(32 * (side // 4) ** 2, 64)
        self.fc2 = torch.nn.Linear(64, classes)

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


def check_name(parser, models, name, more=()):
    """`models` is torchvision's module. `more` are names that only this script knows."""
    known = [*models.list_models(module=models), *more]
    if name not in known:
        near = ", ".join(difflib.get_close_matches(name, known)) or ", ".join(known)
        parser.error(f"--model: expected a model of torchvision, found {name}; there is {near}")
