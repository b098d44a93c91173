"""Random transactions against a dict: after each, the stock package reads exactly the dict's tensors and metadata."""

import json
import os
import random
import sys

import numpy as np
import pytest
import safetensors
import st_abi

sys.path.insert(0, str(st_abi.ROOT / "bindings" / "python"))
os.environ.setdefault("LIBST_LIBRARY", str(st_abi.LIBRARY))
import libst  # noqa: E402

DTYPES = [np.float32, np.float16, np.int64, np.uint8, np.bool_, np.float64, np.complex64]


class Random:
    """Names, arrays and steps, drawn so that every case of the planner comes up."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.n = 0

    def name(self):
        self.n += 1
        return (
            self.r.choice(["w", "layer.{}.weight", "π/{}", 'quote"{}', "tab\t{}", "x" * 90 + "{}"]).format(self.n)
            + f".{self.n}"
        )

    def array(self):
        kind = self.r.choice(DTYPES)
        size = np.dtype(kind).itemsize
        nbytes = self.r.choice([0, size, 1000, 4096, 4097, 8192, 12288, 65536, 40960, self.r.randrange(200_000)])
        count = nbytes // size
        data = self.r.randbytes(count * size)
        array = np.frombuffer(data, np.uint8) % 2 if kind is np.bool_ else np.frombuffer(data, np.uint8)
        array = array.view(kind)
        shape = self.r.choice([(count,), (1, count), (count, 1, 1)]) if count != 1 else self.r.choice([(), (1,)])
        return array.reshape(shape)

    def like(self, array):
        data = np.frombuffer(self.r.randbytes(array.nbytes), np.uint8)
        return (data % 2 if array.dtype == np.bool_ else data).view(array.dtype).reshape(array.shape)

    def step(self, t, tensors, metadata):
        """One change, of the transaction and of the model."""
        kind = self.r.choice(["put", "put", "replace", "update", "update", "delete", "rename", "metadata", "metadata"])
        if kind == "put" or not tensors:
            name, array = self.name(), self.array()
            t.put(name, array)
            tensors[name] = array
        elif kind == "metadata":
            if metadata and self.r.random() < 0.4:
                key = self.r.choice(list(metadata))
                t.metadata(key, None)
                del metadata[key]
            else:
                key, value = self.r.choice(["a", "b", "format", "ключ"]), "v" * self.r.choice([0, 3, 50, 3000])
                t.metadata(key, value)
                metadata[key] = value
        else:
            name = self.r.choice(list(tensors))
            if kind == "replace":
                tensors[name] = self.array()
                t.put(name, tensors[name])
            elif kind == "update":
                tensors[name] = self.like(tensors[name])
                t.update(name, tensors[name])
            elif kind == "delete":
                t.delete(name)
                del tensors[name]
            else:
                new = self.name()
                t.rename(name, new)
                tensors[new] = tensors.pop(name)

    def trained(self, tensors):
        """The model after a step of training: of some tensors few elements are others."""
        large = [name for name, array in tensors.items() if array.nbytes >= 4096]
        after = dict(tensors)
        for name in self.r.sample(large, min(len(large), self.r.choice([1, 2, 5]))):
            elements = np.frombuffer(tensors[name].tobytes(), np.uint8).reshape(-1, tensors[name].itemsize).copy()
            elements[self.r.sample(range(len(elements)), max(1, len(elements) // 50)), 0] ^= 1
            after[name] = elements.reshape(-1).view(tensors[name].dtype).reshape(tensors[name].shape)
        return after

    def options(self):
        pick = self.r.random
        return {
            "copy": pick() < 0.3,
            "publish": pick() < 0.2,
            "layout": "canonical" if pick() < 0.1 else "keep",
            "alignment": self.r.choice([8, 64, 4096]) if pick() < 0.1 else 0,
            "header_reserve": 5000 if pick() < 0.05 else 0,
        }


def stock_reads(path, tensors, metadata, why):
    data = path.read_bytes()
    read = dict(safetensors.deserialize(data))
    assert set(read) == set(tensors), why
    for name, array in tensors.items():
        assert tuple(read[name]["shape"]) == array.shape, (why, name)
        assert bytes(read[name]["data"]) == array.tobytes(), (why, name)
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    assert header.get("__metadata__", {}) == metadata, why


def is_compact(path):
    data = path.read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    spare = begin - len(data[:begin].rstrip(b" "))
    return begin % 64 == 0 and spare < 64 + 4096  # less than a block more lets blocks be shared


def train(rng, path, tensors, metadata, folder):
    """Some steps, each by a delta, and some of them back. Answers what the model has then, and the count of deltas."""
    states = [tensors]
    for step in range(rng.r.choice([1, 1, 3])):
        states.append(rng.trained(states[-1]))
        libst.save(folder / "from", states[-2], metadata)
        libst.save(folder / "to", states[-1], metadata)
        libst.diff(folder / "from", folder / "to", folder / f"forth{step}")
    for step, after in enumerate(states[1:]):
        options = {"reverse": folder / f"back{step}", "publish": rng.r.random() < 0.1}
        plan = libst.patch(path, folder / f"forth{step}", **options)
        stock_reads(path, after, metadata, f"step {step}, {plan}")
    back = rng.r.randrange(len(states))
    for step in reversed(range(len(states) - 1 - back, len(states) - 1)):
        libst.patch(path, folder / f"back{step}")
        stock_reads(path, states[step], metadata, f"step {step} taken back")
    return states[-1 - back], len(states) - 1 + back


@pytest.mark.parametrize("source", ["stock", "libst"])
def test_stock_reads_the_model_after_every_transaction(any_disk, deltas, bound, tell, source):
    rng = Random(bound.seed)
    path = any_disk / "m.safetensors"
    tensors = {rng.name(): rng.array() for _ in range(8)}
    metadata = {"format": "np"}
    if source == "stock":
        from safetensors.numpy import save_file

        save_file(tensors, path, metadata)
    else:
        libst.save(path, tensors, metadata)
    handles = [libst.open(path, "r+"), libst.open(path, "r+")]
    kinds, shared = {"nothing": 0, "patch": 0, "publish": 0, "delta": 0}, 0
    count = bound(250, 4000)
    for i in range(count):
        if rng.r.random() < 0.1:  # an open handle keeps the blocks of every file that it has replaced
            for which in range(2):
                handles[which].close()
                handles[which] = libst.open(path, "r+", mapping=rng.r.choice(["auto", "none"]))
        f = handles[rng.r.randrange(2)]
        if rng.r.random() < 0.15:
            tensors, count_of_deltas = train(rng, path, tensors, metadata, deltas)
            kinds["delta"] += count_of_deltas
        f.refresh()  # a step may name what the other handle has changed only once this one has seen it
        options = rng.options()
        trial_tensors, trial_metadata = dict(tensors), dict(metadata)
        with f.transaction(**options) as t:
            for _ in range(rng.r.choice([1, 1, 2, 5])):
                rng.step(t, trial_tensors, trial_metadata)
            plan = t.plan()
            abandon = rng.r.random() < 0.05
            if abandon:
                t.abort()
        why = f"transaction {i}, {options}, {plan}"
        if not abandon:
            tensors, metadata = trial_tensors, trial_metadata
            kinds[plan.kind] += 1
            shared += plan.bytes_shared
            assert path.stat().st_size == plan.file_size, why
        stock_reads(path, tensors, metadata, why)
        assert set(f) == set(tensors), why
        for name in list(tensors)[:3]:
            assert f[name].tobytes() == tensors[name].tobytes(), why
        if i % 50 == 49:
            libst.compact(path)
            stock_reads(path, tensors, metadata, why + ", compacted")
            assert is_compact(path), why
        if len(tensors) > 30:  # a fresh start, so that files stay small
            f.refresh()
            with f.transaction() as t:
                for name in list(tensors)[5:]:
                    t.delete(name)
                    del tensors[name]
            stock_reads(path, tensors, metadata, why + ", pruned")
    for f in handles:
        f.close()
    assert os.listdir(any_disk) in (["m.safetensors"], ["lost+found", "m.safetensors"], ["m.safetensors", "lost+found"])
    assert min(kinds["patch"], kinds["publish"], kinds["delta"]) > count // 20
    tell(count, "random transactions against a model", f"{kinds}, {shared >> 20} MiB shared")
