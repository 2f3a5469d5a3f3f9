#!/usr/bin/env python3
"""Writes a checkpoint's weights as float32 with a list of what they are, and what PyTorch makes of some examples.

    export.py DATA OUT
"""

import json
import sys
from pathlib import Path

import torch

from model import Seedling, Shape
from rows import Rows

EXAMPLES = 24
KEPT = 8
NAMES = {
    "embedding": "token_embd",
    "norm": "output_norm",
    "output": "output",
    "attn_norm": "attn_norm",
    "ffn_norm": "ffn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}


def gguf_name(name: str) -> str:
    parts = name.split(".")
    if parts[0] == "layers":
        return f"blk.{parts[1]}.{NAMES[parts[2]]}.weight"
    return f"{NAMES[parts[0]]}.weight"


def reference(model: Seedling, rows: Rows) -> list[dict[str, object]]:
    """For the first short examples: the tokens of group 0 and the likeliest tokens behind them, with their log-probabilities."""
    found = []
    for example in range(len(rows)):
        batch = rows.batch([example])
        alone = batch.groups[0] == 0
        tokens = batch.tokens[0][alone][None]
        if tokens.shape[1] > 80 or len(found) == EXAMPLES:
            continue
        positions = torch.arange(tokens.shape[1])[None]
        states = model.hidden(tokens, positions, torch.zeros_like(tokens))
        best = torch.log_softmax(model.logits(states[0, -1]), -1).topk(KEPT)
        found.append(
            {
                "tokens": tokens[0].tolist(),
                "likeliest": best.indices.tolist(),
                "logprobs": [round(value, 4) for value in best.values.tolist()],
            }
        )
    return found


@torch.no_grad()
def main() -> None:
    data, out = Path(sys.argv[1]), Path(sys.argv[2])
    saved = torch.load(out / "checkpoint.pt")
    shape = Shape(**saved["shape"])
    model = Seedling(shape)
    model.load_state_dict(saved["model"])
    tensors = []
    with open(out / "weights.bin", "wb") as file:
        for name, weight in model.named_parameters():
            file.write(weight.detach().contiguous().numpy().astype("<f4").tobytes())
            # The file's order of dimensions: a row's length first.
            tensors.append({"name": gguf_name(name), "dimensions": list(reversed(weight.shape))})
    (out / "weights.json").write_text(json.dumps({"shape": vars(shape), "tokens": saved["tokens"], "tensors": tensors}))
    (out / "reference.json").write_text(json.dumps(reference(model, Rows(data, "validation"))))


if __name__ == "__main__":
    main()
