"""A small vision transformer as a sequence of layers, each of which takes one tensor."""

import time

import torch
from torch import nn


class Pause(torch.autograd.Function):
    """The identity, which sleeps so many microseconds for each row, twice that in the backward pass:
    stands in for compute where ranks share few cores."""

    @staticmethod
    def forward(ctx, values, row_us):
        ctx.seconds = 2e-6 * row_us * len(values)
        time.sleep(ctx.seconds / 2)
        return values.clone()

    @staticmethod
    def backward(ctx, gradient):
        time.sleep(ctx.seconds)
        return gradient, None


def after_pause(values, row_us):
    # Shapes are found out by a run on tensors without memory, which takes no time.
    return Pause.apply(values, row_us) if row_us and values.device.type != "meta" else values


class Embedding(nn.Module):
    """Patches of an image as tokens, with their places."""

    def __init__(self, channels, side, patch, width):
        super().__init__()
        self.cut = nn.Conv2d(channels, width, patch, stride=patch)
        self.places = nn.Parameter(torch.randn(1, (side // patch) ** 2, width) * 0.02)

    def forward(self, images):
        return self.cut(images).flatten(2).transpose(1, 2) + self.places


class Attention(nn.Module):
    """Half of an encoder's layer: attention with its residual, which no stage cuts."""

    def __init__(self, width, heads, pause_us):
        super().__init__()
        self.pause_us = pause_us
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, tokens):
        normed = self.norm(tokens)
        mixed = self.attention(normed, normed, normed, need_weights=False)[0]
        return after_pause(tokens + mixed, self.pause_us)


class FeedForward(nn.Module):
    """The other half."""

    def __init__(self, width, pause_us):
        super().__init__()
        self.pause_us = pause_us
        self.layers = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(),
                                    nn.Linear(4 * width, width))

    def forward(self, tokens):
        return after_pause(tokens + self.layers(tokens), self.pause_us)


class Head(nn.Module):
    """The classes of the mean token."""

    def __init__(self, width, classes):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.classes = nn.Linear(width, classes)

    def forward(self, tokens):
        return self.classes(self.norm(tokens).mean(1))


def encoder_layers(width, heads, layers, pause_us=0):
    """Two sublayers for each of `layers`."""
    return [half for _ in range(layers)
            for half in (Attention(width, heads, pause_us), FeedForward(width, pause_us))]


def vision_transformer(channels, side, classes, *, patch, width, heads, layers, pause_us=0):
    """Embedding, two sublayers for each of `layers`, head."""
    return nn.Sequential(Embedding(channels, side, patch, width),
                         *encoder_layers(width, heads, layers, pause_us), Head(width, classes))
