"""
Where training starts. Random weights need tens of millions of tokens until heads form that find things in a prompt; two cores
have ten. So some heads begin as what they would become (Olsson et al. 2022; the idea of Trockman and Kolter, "Mimetic
initialization", 2023): in the first layer heads that look one, two and three tokens back, in the others heads that look for
the same token, and for what stood behind it. Training is free to change all of them.
"""

import torch
from torch import Tensor, nn

# Size of the one number that all embeddings share, from which the heads that look back make their constant queries and keys.
CONSTANT = 4.0
# Strength of looking back, and of looking for the same token.
BACK = 6.5
SAME = 2.3
# Pairs of rotary numbers that turn fast enough to tell neighbours apart; from the ninth pair on they hardly turn.
FAST_PAIRS = 4
SLOW_FROM = 16
OUTPUT_SCALE = 0.15


def orthogonal_rows(rows: int, columns: int) -> Tensor:
    return torch.linalg.qr(torch.randn(columns, rows))[0].T


def look_back(layer: nn.Module, head: int, offset: int, read: Tensor, written: Tensor, frequencies: Tensor) -> None:
    size = layer.shape.head
    rows = slice(head * size, (head + 1) * size)
    for weight in (layer.q.weight, layer.k.weight):
        weight[rows] *= 0.1
    for pair in range(FAST_PAIRS):
        angle = -offset * frequencies[pair]
        layer.q.weight[head * size + 2 * pair, 0] = BACK / CONSTANT * angle.cos()
        layer.q.weight[head * size + 2 * pair + 1, 0] = BACK / CONSTANT * angle.sin()
        layer.k.weight[head * size + 2 * pair, 0] = BACK / CONSTANT
    layer.v.weight[rows] = read
    layer.o.weight[:, rows] = written.T


def look_for(layer: nn.Module, head: int, wanted: Tensor, found: Tensor) -> None:
    """Attends where `found` of a token says what `wanted` says of this one."""
    size = layer.shape.head
    slow = slice(head * size + SLOW_FROM, (head + 1) * size)
    rows = slice(head * size, (head + 1) * size)
    layer.q.weight[rows] *= 0.1
    layer.k.weight[rows] *= 0.1
    layer.q.weight[slow] = SAME * wanted[: size - SLOW_FROM]
    layer.k.weight[slow] = SAME * found[: size - SLOW_FROM]


@torch.no_grad()
def prepare(model: nn.Module) -> None:
    shape = model.shape
    size = shape.head
    nn.init.normal_(model.embedding.weight)
    model.embedding.weight[:, 0] = CONSTANT
    for layer in model.layers:
        for linear in (layer.q, layer.k, layer.v, layer.gate, layer.up):
            nn.init.normal_(linear.weight, std=linear.weight.shape[1] ** -0.5)
        nn.init.zeros_(layer.o.weight)
        nn.init.zeros_(layer.down.weight)
    # What a token is, and where the first layer writes what the ones before it were: directions that do not overlap.
    basis = orthogonal_rows(5 * size, shape.width)[:, 1:]
    basis = nn.functional.normalize(torch.cat((torch.zeros(5 * size, 1), basis), 1), dim=1)
    token, *before, said = (basis[at * size : (at + 1) * size] for at in range(5))
    # The likeliest token is the one that a head has put where it is said.
    model.output.weight.copy_(OUTPUT_SCALE * model.embedding.weight @ token.T @ said)
    first, *others = model.layers
    for offset in (1, 2, 3):
        look_back(first, offset - 1, offset, token, before[offset - 1], model.frequencies)
    for layer in others:
        look_for(layer, 0, token, before[0])
        look_for(layer, 1, token, token)
        look_for(layer, 2, token, before[1])
        layer.v.weight[0:size] = token
        layer.o.weight[:, 0:size] = said.T
        # Behind the same token: what stood before it.
        layer.v.weight[size : 2 * size] = before[1]
