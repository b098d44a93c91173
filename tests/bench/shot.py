"""One measurement in a process of its own, as a user's program meets it: nothing is warm but what was imported.

    shot.py WAY ROW FILE...     WAY: stock, libst (the drop-in), runai or fastsafetensors; prints a line of JSON:
                                seconds, anonymous (RssAnon) and shared (Pss) in bytes with all results alive, and sum

Needs torch, and what WAY names. Imports are made before the clock starts.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any, Callable

import torch

way, row, *files = sys.argv[1:]

torch.empty(1).sum()  # and threads that torch starts at its first work

if way in ("stock", "libst"):
    package = "safetensors" if way == "stock" else "libst.compat"
    safe_open = importlib.import_module(package).safe_open
    module = importlib.import_module(f"{package}.torch")
    load, load_file, save_file = module.load, module.load_file, module.save_file


def touch(tensors: dict[str, Any]) -> int:
    """Look at every page of every tensor."""
    return sum(int(t.reshape(-1).view(torch.uint8)[::4096].sum()) for t in tensors.values())


def by_stock(files: list[str]) -> dict[str, Any]:
    return {name: t for file in files for name, t in load_file(file).items()}


def by_runai(files: list[str]) -> dict[str, Any]:
    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as streamer:
        streamer.stream_files(files)
        # Its tensors lie in a buffer that it uses again, so a kept tensor must be a copy.
        return {name: tensor.clone() for name, tensor in streamer.get_tensors()}


def by_fastsafetensors(files: list[str]) -> dict[str, Any]:
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    loader = SafeTensorsFileLoader(SingleGroup(), "cpu", nogds=True)
    loader.add_filenames({0: files})
    keep.append(loader)
    buffer = loader.copy_files_to_device()
    keep.append(buffer)
    return {name: buffer.get_tensor(name) for name in loader.get_keys()}


LOADERS = {"stock": by_stock, "libst": by_stock, "runai": by_runai, "fastsafetensors": by_fastsafetensors}
keep: list[Any] = []


def load_and_touch() -> int:
    keep.append(LOADERS[way](files))
    return touch(keep[-1])


def model(convert: bool) -> dict[str, Any]:
    """What transformers does: each parameter by a slice of all of it, if need be converted, set into a module."""
    place = torch.nn.Module()
    for file in files:
        with safe_open(file, framework="pt") as f:
            for name in f.keys():
                tensor = f.get_slice(name)[...]
                if convert:
                    tensor = tensor.to(torch.float32)
                place._parameters[name] = torch.nn.Parameter(tensor, requires_grad=False)
    keep.append(place)
    return place._parameters


def from_pretrained() -> int:
    return len(model(False))


def from_pretrained_converted() -> int:
    return len(model(True))


def loop() -> int:
    with safe_open(files[0], framework="pt") as f:
        keep.append({name: f.get_tensor(name) for name in f.keys()})
    return len(keep[-1])


def small_slices() -> int:
    with safe_open(files[0], framework="pt") as f:
        keep.append({name: f.get_slice(name)[:1] for name in f.keys()})
    return len(keep[-1])


def shapes() -> int:
    with safe_open(files[0], framework="pt") as f:
        slices = [f.get_slice(name) for name in f.keys()]
        return sum(len(s.get_shape()) + len(s.get_dtype()) for s in slices)


def from_bytes() -> int:
    keep.append(load(content))
    return touch(keep[-1])


def rows() -> int:
    with safe_open(files[0], framework="pt") as f:
        embedding = f.get_slice("embedding")
        keep.append({n: embedding[n : n + 1] for n in random.Random(1).sample(range(embedding.get_shape()[0]), 2000)})
    return touch(keep[-1])


def save() -> int:
    """Durable: libst syncs, and stock is followed by the syncs of file and folder."""
    save_file(to_save, files[0])
    for name in (files[0], os.path.dirname(files[0])) if way == "stock" else ():
        opened = os.open(name, os.O_RDONLY)
        os.fsync(opened)
        os.close(opened)
    return os.path.getsize(files[0])


def tiny() -> int:
    return sum(len(load_file(files[0])) for _ in range(200))


ROWS: dict[str, Callable[[], int]] = {
    f.__name__: f
    for f in (
        load_and_touch, from_pretrained, from_pretrained_converted, loop, small_slices, shapes, from_bytes, rows, save, tiny,
    )
}  # fmt: skip


def memory(file: str, name: str) -> int:
    text = Path(file).read_text()
    return int(next(line for line in text.splitlines() if line.startswith(name)).split()[1]) * 1024


to_save = {f"layers.{i}.weight": torch.full((1024, int(os.environ["SAVED_COLUMNS"])), float(i)) for i in range(300)} if row == "save" else {}
content = Path(files[0]).read_bytes() if row == "from_bytes" else b""
anonymous, proportional = memory("/proc/self/status", "RssAnon"), memory("/proc/self/smaps_rollup", "Pss:")
begin = time.perf_counter()
found = ROWS[row]()
took = time.perf_counter() - begin
print(json.dumps({
    "seconds": took,
    "anonymous": memory("/proc/self/status", "RssAnon") - anonymous,
    "pss": memory("/proc/self/smaps_rollup", "Pss:") - proportional,
    "sum": found,
}))  # fmt: skip
