"""Random valid files, compared with stock both ways, and libst's updates as stock sees them."""

import os
from random import Random

import generate
import pytest
import reference
from corpus import DTYPES

SEED = int(os.environ.get("LIBST_TEST_SEED", "20240901"))
FILES = 400


def content_of(libst, **how):
    with libst.File(**how) as f:
        return {n: reference.Tensor(t.dtype, t.shape, t.data) for n, t in f.tensors().items()}, f.metadata()


def test_both_read_files_spelled_at_random(libst, tmp_path):
    path, seen = tmp_path / "random.safetensors", set()
    for i in range(FILES):
        r = Random(SEED + i)
        tensors, metadata = generate.model(r)
        content = generate.build(r, tensors, metadata)
        path.write_bytes(content)
        assert reference.read(content) == tensors, f"the generator made an invalid file: seed {SEED + i}"
        for how in ({"path": path}, {"memory": content}):
            found, found_metadata = content_of(libst, **how)
            assert found == tensors, f"seed {SEED + i}"
            assert found_metadata == reference.metadata(path) == (metadata or {}), f"seed {SEED + i}"
        seen |= {t.dtype for t in tensors.values()}
    assert seen == set(DTYPES)


def test_libst_reads_what_stock_writes(libst):
    seen = set()
    for i in range(FILES):
        tensors, metadata = generate.model(Random(SEED + i), writable=True)
        content = reference.write(tensors, metadata)
        found, found_metadata = content_of(libst, memory=content)
        assert found == tensors, f"seed {SEED + i}"
        assert found_metadata == (metadata or {}), f"seed {SEED + i}"
        seen |= {t.dtype for t in tensors.values()}
    assert seen == {d for d in DTYPES if not d.startswith("F6")}  # stock's writer has no 6-bit types


def test_libst_lists_tensors_by_offset(libst):
    for i in range(50):
        r = Random(SEED + i)
        with libst.File(memory=generate.build(r, *generate.model(r))) as f:
            offsets = [t.file_offset for t in f.tensors(data=False).values()]
            assert offsets == sorted(offsets)


@pytest.mark.parametrize("i", range(40))
def test_stock_sees_an_update_and_nothing_else_changed(libst, tmp_path, i):
    r = Random(SEED + i)
    tensors: dict = {}
    while not any(t.data for t in tensors.values()):
        tensors, metadata = generate.model(r)
    before = generate.build(r, tensors, metadata)
    path = tmp_path / "model.safetensors"
    path.write_bytes(before)
    path.chmod(0o640)
    stat = path.stat()

    name = r.choice([n for n, t in tensors.items() if t.data])
    new = r.randbytes(len(tensors[name].data))
    with libst.File(path, write=True) as f:
        begin = f.tensors(data=False)[name].file_offset
        f.update(name, new)
        assert f.tensors()[name].data == new, "the handle that wrote sees its own change"

    after = path.read_bytes()
    assert after == before[:begin] + new + before[begin + len(new) :]
    assert reference.read(after) == tensors | {name: reference.Tensor(tensors[name].dtype, tensors[name].shape, new)}
    now = path.stat()
    assert (now.st_ino, now.st_mode, now.st_size, now.st_nlink) == (
        stat.st_ino,
        stat.st_mode,
        stat.st_size,
        stat.st_nlink,
    )
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["model.safetensors"], "no journal is left behind"
