"""Muon (Jordan et al. 2024): momentum whose matrices are made near orthogonal, in about half the steps of Adam."""

from typing import Iterable

import torch
from torch import Tensor


def orthogonal(g: Tensor) -> Tensor:
    """Five Newton-Schulz steps on matrices stacked in the first dimension."""
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = g.shape[1] > g.shape[2]
    x = g.transpose(1, 2) if tall else g
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        s = x @ x.transpose(1, 2)
        x = a * x + (b * s + c * s @ s) @ x
    return x.transpose(1, 2) if tall else x


class Muon(torch.optim.Optimizer):
    """For weight matrices of two dimensions; matrices of one shape are handled together."""

    def __init__(self, weights: Iterable[Tensor], lr: float, momentum: float = 0.95, decay: float = 0.0) -> None:
        super().__init__(list(weights), {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        for group in self.param_groups:
            by_shape: dict[tuple[int, ...], list[Tensor]] = {}
            for weight in group["params"]:
                by_shape.setdefault(tuple(weight.shape), []).append(weight)
            for shape, weights in by_shape.items():
                updates = []
                for weight in weights:
                    state = self.state[weight]
                    buffer = state.setdefault("buffer", torch.zeros_like(weight))
                    buffer.mul_(group["momentum"]).add_(weight.grad)
                    updates.append(weight.grad + group["momentum"] * buffer)
                scale = group["lr"] * max(1.0, shape[0] / shape[1]) ** 0.5
                for weight, update in zip(weights, orthogonal(torch.stack(updates))):
                    weight.mul_(1 - group["lr"] * group["decay"]).add_(update, alpha=-scale)
