"""A small decoder-only transformer over bytes."""

import torch
from torch import nn
from torch.nn import functional

BYTES = 256


class Block(nn.Module):
    """Attention to what came before, then two dense layers, each beside a way around it."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.dense = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                   nn.Linear(4 * width, width))

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.attention(self.norms[0](x)).view(batch, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.dense(self.norms[1](x))


class LanguageModel(nn.Module):
    """Scores of each byte that may come next, at each place of windows of up to `length` bytes."""

    def __init__(self, width, layers, heads, length):
        super().__init__()
        self.bytes = nn.Embedding(BYTES, width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.scores = nn.Linear(width, BYTES, bias=False)
        self.scores.weight = self.bytes.weight
        nn.init.normal_(self.bytes.weight, std=0.02)
        nn.init.normal_(self.places.weight, std=0.02)

    def forward(self, windows):
        places = torch.arange(windows.shape[1], device=windows.device)
        return self.scores(self.norm(self.blocks(self.bytes(windows) + self.places(places))))
