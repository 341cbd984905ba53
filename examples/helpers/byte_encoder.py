"""A small encoder in the manner of BERT over bytes, as a sequence of layers that each take one tensor,
and the text that it learns: windows of bytes, of which some are masked."""

import sys

import torch
from torch import nn
from torch.nn import functional

from helpers import text
from helpers.image_transformer import encoder_layers

BYTES = 256
MASK = BYTES
HELD_BACK = 10  # one window in so many is for the test
MASKED_PERCENT = 15
NO_TARGET = -100


class Embedding(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.values = nn.Embedding(BYTES + 1, width)
        self.places = nn.Parameter(torch.randn(1, tokens, width) * 0.02)

    def forward(self, tokens):
        return self.values(tokens) + self.places


class Head(nn.Module):
    """Scores of the bytes at each place."""

    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, BYTES)

    def forward(self, tokens):
        return self.scores(self.norm(tokens))


def byte_encoder(tokens, *, width, heads, layers, pause_us=0):
    """Embedding, two sublayers for each of `layers`, head."""
    return nn.Sequential(Embedding(tokens, width), *encoder_layers(width, heads, layers, pause_us),
                         Head(width))


def load(path, tokens, seed):
    """(inputs, targets) to train and to test with: windows of the text, one behind the other, the
    same bytes of which are masked in every epoch, as many in each."""
    data = text.read([path])
    windows = data[:len(data) // tokens * tokens].view(-1, tokens).long()
    held_back = len(windows) // HELD_BACK
    if not held_back:
        sys.exit(f"--data {path}: expected text of at least {HELD_BACK * tokens} bytes, {HELD_BACK} "
                 f"windows of {tokens}, found {len(data)}")
    generator = torch.Generator().manual_seed(seed)
    count = max(tokens * MASKED_PERCENT // 100, 1)
    masked = torch.rand(windows.shape, generator=generator).topk(count).indices
    targets = torch.full_like(windows, NO_TARGET).scatter(1, masked, windows.gather(1, masked))
    inputs = windows.scatter(1, masked, MASK)
    return ((inputs[:-held_back], targets[:-held_back]), (inputs[-held_back:], targets[-held_back:]))


def loss(outputs, targets):
    """The mean over masked bytes, as many in each row."""
    return functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(),
                                    ignore_index=NO_TARGET)
