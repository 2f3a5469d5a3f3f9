"""Training rows as build.ts writes them, put together to batches."""

from dataclasses import dataclass
from pathlib import Path
from typing import Iterator

import numpy
import torch
from torch import Tensor

ROW = 5
PADDING_GROUP = 255
POOL = 1024
FARTHEST = 8000
# Share of the examples whose positions get gaps; more of them cost the heads that look for neighbours.
APART = 0.2


@dataclass(frozen=True)
class Batch:
    tokens: Tensor
    targets: Tensor
    weights: Tensor
    groups: Tensor
    positions: Tensor


class Rows:
    def __init__(self, folder: Path, name: str) -> None:
        self.index = numpy.fromfile(folder / f"{name}.index", dtype=numpy.uint32).astype(numpy.int64)
        self.rows = numpy.memmap(folder / f"{name}.rows", dtype=numpy.uint16, mode="r").reshape(-1, ROW)

    def __len__(self) -> int:
        return len(self.index) - 1

    def batch(self, examples: list[int], chance: numpy.random.Generator | None = None) -> Batch:
        """`chance`: moves parts of some examples apart, as if long text stood between them."""
        parts = [numpy.asarray(self.rows[self.index[i] : self.index[i + 1]], dtype=numpy.int64) for i in examples]
        longest = max(len(part) for part in parts)
        out = numpy.zeros((len(parts), longest, ROW), dtype=numpy.int64)
        out[:, :, 3] = PADDING_GROUP
        for at, part in enumerate(parts):
            out[at, : len(part)] = part
            if chance is not None and chance.random() < APART:
                spread(out[at, : len(part), 4], chance)
        token, target, weight, group, position = (torch.from_numpy(out[:, :, column].copy()) for column in range(ROW))
        return Batch(token, target, weight.float() / 100, group, position)


def spread(positions: numpy.ndarray, chance: numpy.random.Generator) -> None:
    """Puts a gap into the positions: rotary angles of far tokens are met without their cost."""
    last = int(positions.max())
    for _ in range(int(chance.integers(1, 4))):
        at = int(chance.integers(1, last + 1))
        room = FARTHEST - int(positions.max())
        if room > 1:
            positions[positions >= at] += int(numpy.exp(chance.random() * numpy.log(room)))


def batches(rows: Rows, tokens: int, seed: int) -> Iterator[list[int]]:
    """All examples once, in batches of about `tokens` tokens; examples of a batch have about the same length."""
    chance = numpy.random.default_rng(seed)
    lengths = numpy.diff(rows.index)
    order = chance.permutation(len(rows))
    for start in range(0, len(order), POOL):
        pool = order[start : start + POOL]
        pool = pool[numpy.argsort(lengths[pool], kind="stable")]
        made: list[list[int]] = [[]]
        for example in pool:
            if made[-1] and (len(made[-1]) + 1) * lengths[example] > tokens:
                made.append([])
            made[-1].append(int(example))
        for at in chance.permutation(len(made)):
            yield made[at]
