"""A small vision transformer as a sequence of layers, each of which takes one tensor."""

import torch
from torch import nn


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

    def __init__(self, width, heads):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, tokens):
        normed = self.norm(tokens)
        return tokens + self.attention(normed, normed, normed, need_weights=False)[0]


class FeedForward(nn.Module):
    """The other half."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(),
                                    nn.Linear(4 * width, width))

    def forward(self, tokens):
        return tokens + self.layers(tokens)


class Head(nn.Module):
    """The classes of the mean token."""

    def __init__(self, width, classes):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.classes = nn.Linear(width, classes)

    def forward(self, tokens):
        return self.classes(self.norm(tokens).mean(1))


def vision_transformer(channels, side, classes, *, patch, width, heads, layers):
    """Embedding, two sublayers for each of `layers`, head."""
    encoder = [half for _ in range(layers)
               for half in (Attention(width, heads), FeedForward(width))]
    return nn.Sequential(Embedding(channels, side, patch, width), *encoder, Head(width, classes))
