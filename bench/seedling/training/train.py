#!/usr/bin/env python3
"""Trains the seedling on CPU cores, one process a core, over shared weights.

    train.py DATA OUT --tokens N [--processes 4] [--batch 512] [--early 0.55] [--focus 0.36] [--long 0.06] [--decay 0.4]

Resumes from OUT/checkpoint.pt. The learning rate is constant after the warm-up and falls to zero over the last part, so the end can
be moved while it runs: OUT/tokens, when it is there, holds another number of tokens. Everything counts tokens, nothing time.
"""

import argparse
import json
import os
import time
from itertools import islice
from pathlib import Path
from typing import Iterator

import numpy
import torch
import torch.multiprocessing as multiprocessing
from torch import Tensor
from torch.nn import functional as F

from model import Seedling, Shape
from muon import Muon
from rows import Batch, Rows, batches

BYTES_AND_SPECIALS = 265
LABEL_BOOST = 3.0
PROMPT_BELOW = 0.1
PROMPT_SHARE = 1 / 3
WARM_UP = 150_000
MATRIX_RATE = 0.015
MATRIX_DECAY = 0.05
EMBEDDING_RATE = 0.02
OUTPUT_RATE = 4e-3
NORM_RATE = 0.01
CHECKPOINT_SECONDS = 60
LOG_STEPS = 100


def loss_of(model: Seedling, batch: Batch) -> tuple[Tensor, Tensor]:
    """The weighted loss, and its sum over the labels and replies alone with their count."""
    states = model.hidden(batch.tokens, batch.positions, batch.groups)
    # A third of the prompts' tokens, for three times the weight: what they teach is little, the output's part is a fifth of the work.
    spared = (batch.weights > 0) & (batch.weights < PROMPT_BELOW)
    used = (batch.weights >= PROMPT_BELOW) | spared & (torch.rand(spared.shape) < PROMPT_SHARE)
    weights, targets = batch.weights[used], batch.targets[used]
    weights = torch.where(weights < PROMPT_BELOW, weights / PROMPT_SHARE, weights)
    losses = F.cross_entropy(model.logits(states[used]), targets, reduction="none")
    labels = weights >= 1
    weights = torch.where(labels, weights * LABEL_BOOST, weights)
    return (losses * weights).sum() / weights.sum(), torch.stack((losses[labels].sum(), labels.sum().float()))


def rate(done: int, total: int, decay: float) -> float:
    return min(1.0, done / WARM_UP + 0.02, max(0.0, (total - done) / (decay * total)))


def base_rate(name: str, weight: Tensor) -> float:
    if weight.dim() == 1:
        return NORM_RATE
    return {"embedding.weight": EMBEDDING_RATE, "output.weight": OUTPUT_RATE}.get(name, MATRIX_RATE)


def split_weights(model: Seedling, rank: int, processes: int) -> tuple[list[Tensor], dict[float, list[Tensor]]]:
    """The matrices, and the other weights by their rate, that a process updates; all processes together have each once."""
    matrices: list[Tensor] = []
    others: dict[float, list[Tensor]] = {}
    for at, (name, weight) in enumerate(model.named_parameters()):
        if at % processes == rank:
            base = base_rate(name, weight)
            (matrices if base == MATRIX_RATE and weight.dim() == 2 else others.setdefault(base, [])).append(weight)
    return matrices, others


def taken(rows: Rows, order: Iterator[list[int]], chance: numpy.random.Generator | None) -> Batch | None:
    examples = next(order, None)
    return None if examples is None else rows.batch(examples, chance)


def work(rank: int, options: argparse.Namespace, model: Seedling, gradients: list[list[Tensor]], shared: Tensor, barrier) -> None:
    # A session of its own: kernels that share cores by session then count each process. The first one's id is the one to stop.
    os.setsid()
    if rank == 0:
        (options.out / "pid").write_text(str(os.getpid()))
    torch.set_num_threads(1)
    torch.manual_seed(2 + rank)
    rows = Rows(options.data, "train")
    long_rows = Rows(options.data, "long")
    parameters = list(model.parameters())
    matrices, others = split_weights(model, rank, options.processes)
    muon = Muon(matrices, MATRIX_RATE, decay=MATRIX_DECAY)
    groups = [{"params": weights, "lr": base, "base": base} for base, weights in others.items()]
    adam = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.0)
    muon.param_groups[0]["base"] = MATRIX_RATE
    state = options.out / f"optimizer-{rank}.pt"
    done = int(shared[0])
    step = int(shared[1])
    if state.exists() and done > 0:
        saved = torch.load(state)
        muon.load_state_dict(saved["muon"])
        adam.load_state_dict(saved["adam"])
        muon.param_groups[0]["base"] = MATRIX_RATE
    order = islice(batches(rows, options.batch, 1), step * options.processes + rank, None, options.processes)
    early_rows = Rows(options.data, "early")
    far = islice(batches(long_rows, options.batch, 2 + step), rank, None, options.processes)
    focus_rows = Rows(options.data, "focus")
    last_order = islice(batches(focus_rows, options.batch, 4 + step), rank, None, options.processes)
    soon = islice(batches(early_rows, options.batch, 3 + step), rank, None, options.processes)
    chance = numpy.random.default_rng(1000 * step + rank)
    last = started = time.time()
    tally, since = torch.zeros(2), done
    while True:
        total = int(shared[2])
        if done >= total:
            break
        # The first part has look-ups and copies among the others, the last part long examples.
        batch = None
        if done < total * options.early and step % 2 > 0:
            batch = taken(early_rows, soon, None)
        elif done > total * (1 - options.long) and step % 6 == 0:
            batch = taken(long_rows, far, None)
        elif done > total * (1 - options.focus) and step % 6 < 4:
            batch = taken(focus_rows, last_order, chance)
        if batch is None:
            batch = taken(rows, order, chance)
        if batch is None:
            order = islice(batches(rows, options.batch, 100 + step), rank, None, options.processes)
            batch = rows.batch(next(order), chance)
        loss, label = loss_of(model, batch)
        for parameter in parameters:
            parameter.grad = None
        loss.backward()
        for parameter, buffer in zip(parameters, gradients[rank]):
            buffer.copy_(parameter.grad)
        shared[4 + rank] = (batch.groups != 255).sum()
        tally += label.detach()
        barrier.wait()
        done += int(shared[4 : 4 + options.processes].sum())
        step += 1
        factor = rate(done, total, options.decay)
        mine = {id(weight) for weight in [*matrices, *(one for some in others.values() for one in some)]}
        for at, parameter in enumerate(parameters):
            if id(parameter) in mine:
                parameter.grad = sum(gradient[at] for gradient in gradients) / options.processes
        for optimizer in (muon, adam):
            for group in optimizer.param_groups:
                group["lr"] = group["base"] * factor
            optimizer.step()
        barrier.wait()
        if rank == 0:
            if step % LOG_STEPS == 0:
                speed = (done - since) / (time.time() - last)
                mean = float(tally[0] / max(tally[1], 1))
                print(f"{step}\t{done}\t{loss.item():.4f}\t{mean:.4f}\t{factor:.3f}\t{speed:.0f}", flush=True)
                last, since = time.time(), done
                tally.zero_()
            wanted = options.out / "tokens"
            shared[2] = int(wanted.read_text()) if wanted.exists() else options.tokens
            shared[3] = float(time.time() - started > CHECKPOINT_SECONDS or done >= int(shared[2]))
            shared[0], shared[1] = done, step
        barrier.wait()
        if shared[3] > 0:
            torch.save({"muon": muon.state_dict(), "adam": adam.state_dict()}, state)
            if rank == 0:
                save(options.out, model, done, step)
            started = time.time()
            barrier.wait()


def save(out: Path, model: Seedling, done: int, step: int) -> None:
    partial = out / "checkpoint.partial"
    torch.save({"model": model.state_dict(), "tokens": done, "step": step, "shape": vars(model.shape)}, partial)
    partial.rename(out / "checkpoint.pt")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--batch", type=int, default=512, help="tokens in each process's part of a step")
    parser.add_argument("--long", type=float, default=0.06, help="last share of the tokens that has long examples")
    parser.add_argument("--focus", type=float, default=0.36, help="last share of the tokens that is mostly messages and posts")
    parser.add_argument("--early", type=float, default=0.55, help="first share of the tokens that has look-ups")
    parser.add_argument("--decay", type=float, default=0.4, help="last share of the tokens in which the rate falls to zero")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    merges = json.loads((options.data / "merges.json").read_text())
    model = Seedling(Shape(BYTES_AND_SPECIALS + len(merges["pieces"])))
    # Tokens, steps, the wanted end, whether to save, then each process's tokens of this step.
    shared = torch.zeros(4 + options.processes, dtype=torch.float64)
    kept = options.out / "checkpoint.pt"
    if kept.exists():
        saved = torch.load(kept)
        model.load_state_dict(saved["model"])
        shared[0], shared[1] = saved["tokens"], saved["step"]
    shared[2] = options.tokens
    model.share_memory()
    shared.share_memory_()
    gradients = [[torch.zeros_like(weight).share_memory_() for weight in model.parameters()] for _ in range(options.processes)]
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(options.processes)
    workers = [context.Process(target=work, args=(rank, options, model, gradients, shared, barrier)) for rank in range(options.processes)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
