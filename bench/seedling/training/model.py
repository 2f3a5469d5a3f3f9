"""The seedling: a small Llama (pre-norm, RMSNorm, rotary positions, SwiGLU, no biases)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from start import prepare


@dataclass(frozen=True)
class Shape:
    vocabulary: int
    width: int = 160
    layers: int = 6
    heads: int = 5
    kv_heads: int = 5
    feed_forward: int = 448
    rope_base: float = 500_000.0
    epsilon: float = 1e-5

    @property
    def head(self) -> int:
        return self.width // self.heads


class Norm(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(shape.width))
        self.epsilon = shape.epsilon

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * self.weight


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns pairs of neighbours, llama.cpp's convention for its llama architecture: no weight is permuted at export."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        kv = shape.head * shape.kv_heads
        self.attn_norm, self.ffn_norm = Norm(shape), Norm(shape)
        self.q = nn.Linear(shape.width, shape.width, bias=False)
        self.k = nn.Linear(shape.width, kv, bias=False)
        self.v = nn.Linear(shape.width, kv, bias=False)
        self.o = nn.Linear(shape.width, shape.width, bias=False)
        self.gate = nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.up = nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.down = nn.Linear(shape.feed_forward, shape.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = x.shape
        s = self.shape
        h = self.attn_norm(x)
        q = rotate(self.q(h).view(batch, length, s.heads, s.head), cos, sin).transpose(1, 2)
        k = rotate(self.k(h).view(batch, length, s.kv_heads, s.head), cos, sin)
        v = self.v(h).view(batch, length, s.kv_heads, s.head)
        # Query heads that follow one another share a key head.
        k = k.repeat_interleave(s.heads // s.kv_heads, 2).permute(0, 2, 3, 1)
        v = v.repeat_interleave(s.heads // s.kv_heads, 2).transpose(1, 2)
        scores = torch.matmul(q * s.head**-0.5, k) + mask
        mixed = torch.matmul(torch.softmax(scores, -1), v)
        x = x + self.o(mixed.transpose(1, 2).reshape(batch, length, s.width))
        h = self.ffn_norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Seedling(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape)
        self.output = nn.Linear(shape.width, shape.vocabulary, bias=False)
        steps = torch.arange(0, shape.head, 2, dtype=torch.float32) / shape.head
        self.register_buffer("frequencies", shape.rope_base**-steps, persistent=False)
        prepare(self)

    def hidden(self, tokens: Tensor, positions: Tensor, groups: Tensor) -> Tensor:
        """States of all tokens. A token sees those before it of its own group and of group 0, never padding (group 255)."""
        angles = positions[..., None].float() * self.frequencies
        cos, sin = angles.cos()[:, :, None], angles.sin()[:, :, None]
        same = (groups[:, None, :] == groups[:, :, None]) | (groups[:, None, :] == 0)
        length = tokens.shape[1]
        seen = same & torch.ones(length, length, dtype=torch.bool).tril()
        mask = torch.zeros(seen.shape).masked_fill_(~seen, float("-inf"))[:, None]
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x, cos, sin, mask)
        return self.norm(x)

    def logits(self, states: Tensor) -> Tensor:
        return self.output(states)
