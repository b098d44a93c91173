"""Write a file with the shape of a Llama checkpoint: BF16, hidden size 2048, and exactly the data size asked for.

    llama.py FILE MEBIBYTES

The k_proj and v_proj weights are 4 MiB each; from 512 MiB on, the token embeddings are 64 MiB.
"""

from __future__ import annotations

import json
import os
import sys

import ml_dtypes
import numpy as np

HIDDEN, KV, FEED_FORWARD, MIB = 2048, 1024, 5632, 1 << 20
ROW = 2 * HIDDEN  # bytes

LAYER = {
    "input_layernorm.weight": [HIDDEN],
    "mlp.down_proj.weight": [HIDDEN, FEED_FORWARD],
    "mlp.gate_proj.weight": [FEED_FORWARD, HIDDEN],
    "mlp.up_proj.weight": [FEED_FORWARD, HIDDEN],
    "post_attention_layernorm.weight": [HIDDEN],
    "self_attn.k_proj.weight": [KV, HIDDEN],
    "self_attn.o_proj.weight": [HIDDEN, HIDDEN],
    "self_attn.q_proj.weight": [HIDDEN, HIDDEN],
    "self_attn.v_proj.weight": [KV, HIDDEN],
}


def nbytes(shape: list[int]) -> int:
    return 2 * int(np.prod(shape))


def tensors(data_size: int) -> dict[str, list[int]]:
    """Names and shapes that add up to data_size bytes; whole layers, then rows of embeddings and head."""
    layer_size = sum(map(nbytes, LAYER.values()))
    embeddings = 64 * MIB if data_size >= 512 * MIB else 0
    layers = max(1, (data_size - embeddings - ROW) // layer_size)
    rest = data_size - layers * layer_size - ROW  # the final norm is a row
    embeddings = embeddings or rest
    if rest < embeddings or data_size % ROW:
        raise SystemExit(f"cannot fill {data_size} bytes")
    shapes = {}
    if rest > embeddings:
        shapes["lm_head.weight"] = [(rest - embeddings) // ROW, HIDDEN]
    shapes["model.embed_tokens.weight"] = [embeddings // ROW, HIDDEN]
    for i in range(layers):
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in LAYER.items()}
    shapes["model.norm.weight"] = [HIDDEN]
    return shapes


def write(path: str | os.PathLike, data_size: int) -> None:
    header: dict = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in tensors(data_size).items():
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + nbytes(shape)]}
        at += nbytes(shape)
    text = json.dumps(header, separators=(",", ":")).encode()
    text = text.ljust(-(-(len(text) + 8) // 64) * 64 - 8)

    # Normal weights from one block of 2 M numbers, begun elsewhere for every tensor so that no two are equal.
    block = np.random.default_rng(0).normal(0, 0.02, 2 * MIB).astype(ml_dtypes.bfloat16).tobytes()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for i, shape in enumerate(tensors(data_size).values()):
            begin, left = i * 7919 * 2 % len(block), nbytes(shape)
            while left:
                piece = block[begin : begin + left]
                f.write(piece)
                left -= len(piece)
                begin = 0
        f.flush()
        os.fsync(f.fileno())


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]) * MIB)
