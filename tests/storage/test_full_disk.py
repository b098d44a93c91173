"""Disks with so many bytes free, at 64 levels and more, on ext4, xfs and btrfs.

An update then is durable (ST_OK), or has changed nothing and left nothing (ST_E_NO_SPACE), and the same handle
goes on as soon as there is room. Also where overwriting needs room of its own: everything on btrfs, extents
shared by a reflink, holes.
"""

import os
import subprocess

import disk
import model
import pytest
import st_abi

KIB = 1 << 10
LEVELS = 68
# What an update needs lies amid the levels; on btrfs libst also wants some megabytes for the trees.
STEP = {"ext4": 16 * KIB, "xfs": 16 * KIB, "btrfs": 96 * KIB}
BIG = 320 * KIB
TENSORS = [("U8", [3001]), ("U8", [BIG]), ("U8", [4096]), ("U8", [BIG // 4])]
SIZES = [model.nbytes(t) for t in TENSORS]
RESERVE = 8 << 20


class Ballast:
    """Fills a filesystem to the last block; then lets go of it step by step."""

    def __init__(self, mountpoint, step):
        self.mountpoint, self.given = mountpoint, 0
        self.folder = mountpoint / "ballast"
        self.folder.mkdir()
        self.take_reserve()
        for i in range(LEVELS):
            self._allocate(self.folder / f"step{i}", step)
        disk.sync_filesystem(mountpoint)
        for size in (16 << 20, 1 << 20, 64 * KIB, 16 * KIB, 4 * KIB):
            self._fill(size)
        disk.sync_filesystem(mountpoint)

    def _allocate(self, path, size):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            os.posix_fallocate(fd, 0, size)
        finally:
            os.close(fd)

    def _fill(self, size):
        """All that is left, in files of this size."""
        for i in range(10_000):
            path = self.folder / f"fill{size}.{i}"
            try:
                self._allocate(path, size)
            except OSError:
                path.unlink(missing_ok=True)
                break

    def give_step(self):
        """One step more of free space."""
        (self.folder / f"step{self.given}").unlink()
        self.given += 1
        disk.sync_filesystem(self.mountpoint)

    def give_reserve(self):
        (self.folder / "reserve").unlink()
        disk.sync_filesystem(self.mountpoint)

    def take_reserve(self):
        self._allocate(self.folder / "reserve", RESERVE)


def put_plain(directory, path):
    path.write_bytes(model.file_bytes(TENSORS))


def put_shared(directory, path):
    """All its extents belong to another file as well: overwriting them takes new ones."""
    original = directory / "original.safetensors"
    original.write_bytes(model.file_bytes(TENSORS))
    subprocess.run(["cp", "--reflink=always", original, path], check=True)


def put_sparse(directory, path):
    """The data was never written: holes, which read as zeros."""
    whole = model.file_bytes(TENSORS)
    header = whole[: len(whole) - sum(SIZES)]
    with open(path, "wb") as f:
        f.write(header)
        f.truncate(len(whole))


# What ext4 keeps for root is not free, and commits leave it alone.
NONE_FOR_ROOT = {"ext4": ("-m", "0"), "xfs": (), "btrfs": ()}
FORMS = {"plain": put_plain, "shared extents": put_shared, "holes": put_sparse}
CASES = [(kind, form) for kind in disk.KINDS for form in FORMS if (kind, form) != ("ext4", "shared extents")]


@pytest.mark.parametrize("change", ["one tensor", "a transaction"])
@pytest.mark.parametrize("kind, form", CASES)
def test_every_level_of_free_space(kind, form, change, make_disk, bound, tell):
    d = make_disk(kind, options=NONE_FOR_ROOT[kind])
    directory = d.mount()
    path = directory / "m.safetensors"
    FORMS[form](directory, path)
    disk.sync_filesystem(directory)
    before = path.read_bytes()
    chosen = [1] if change == "one tensor" else [0, 1, 3]
    step = STEP[kind]
    ballast = Ballast(directory, step)

    def payload(version):
        return {f"t{t}": model.pattern(t, version, SIZES[t]) for t in chosen}

    def expected(version):
        offset = len(before) - sum(SIZES)
        result = bytearray(before)
        for t, size in enumerate(SIZES):
            if t in chosen:
                result[offset : offset + size] = model.pattern(t, version, size)
            offset += size
        return bytes(result)

    answers, survived, now = [], 0, before
    for level in range(LEVELS):
        new = expected(2 * level + 1)
        with st_abi.File(path) as f:
            answer = st_abi.status_of(f.update_all, payload(2 * level + 1))
            where = f"{kind}, {form}, level {level} ({level * step} bytes given back)"
            assert answer in ("ST_OK", "ST_E_NO_SPACE"), f"{where}: {answer}; answers so far {answers}"
            answers.append(answer)
            if answer == "ST_OK":
                now = new
            assert path.read_bytes() == now, f"{where}: {answer}, and other bytes than that allows"
            if answer == "ST_E_NO_SPACE" and level % bound(8, 1) == 0:
                ballast.give_reserve()
                now = expected(2 * level + 2)
                f.update_all(payload(2 * level + 2))
                assert path.read_bytes() == now
                survived += 1
                had_reserve = True
            else:
                had_reserve = False
        assert model.journals(path) is None, f"{where}: {answer}, and the journal folder is left after close"
        st_abi.verify(path)
        if (form != "plain" or kind == "btrfs") and now != before:  # it has other blocks now: begin anew
            path.unlink()
            FORMS[form](directory, path)
            disk.sync_filesystem(directory)
            now = before
        if had_reserve:
            ballast.take_reserve()
        ballast.give_step()
    d.umount()
    d.mount()
    assert path.read_bytes() == now
    full = answers.count("ST_E_NO_SPACE")
    detail = f"{form}, {change}: {full} too full, {survived} went on with the same handle"
    tell(LEVELS, f"levels of free space, {kind}", detail)
    assert 0 < full < LEVELS, "the levels do not reach from too little to enough"
    assert survived


def test_hole_that_the_block_count_does_not_tell(make_disk):
    """A file may have as many blocks as it has bytes, and a hole: its extents are blocks too, and so is what lies
    allocated beyond its end."""
    d = make_disk("ext4", options=NONE_FOR_ROOT["ext4"])
    directory = d.mount()
    path = directory / "m.safetensors"
    path.write_bytes(model.file_bytes(TENSORS))
    with st_abi.File(path, writable=False) as f:
        hole = -(-f.describe("t1").file_offset // 4096) * 4096
    with open(path, "r+b") as f:
        subprocess.run(["fallocate", "--punch-hole", "--offset", str(hole), "--length", "65536", path], check=True)
        subprocess.run(["fallocate", "--keep-size", "--offset", str(1 << 20), "--length", "131072", path], check=True)
        os.fsync(f.fileno())
    before = path.read_bytes()
    assert path.stat().st_blocks * 512 >= path.stat().st_size
    ballast = Ballast(directory, 16 * KIB)
    answers = []
    for level in range(LEVELS):
        with st_abi.File(path) as f:
            answers.append(st_abi.status_of(f.update, "t1", model.pattern(1, 1, BIG)))
            assert answers[-1] in ("ST_OK", "ST_E_NO_SPACE"), f"level {level}: {answers}"
        if answers[-1] == "ST_OK":
            break
        assert path.read_bytes() == before
        assert model.journals(path) is None
        ballast.give_step()
    assert answers[-1] == "ST_OK" and len(answers) > 1


def test_room_of_what_was_just_removed(make_disk):
    """btrfs counts the blocks of a removed file as taken until it commits, every half a minute."""
    directory = make_disk("btrfs").mount()
    nbytes = 15 << 20  # a third of what is free
    path = directory / "m.safetensors"
    path.write_bytes(model.file_bytes([("U8", [nbytes])]))
    disk.sync_filesystem(directory)
    for version in range(1, 6):
        with st_abi.File(path) as f:  # a handle keeps a file that it has shown
            f.update_all({"t0": model.pattern(0, version, nbytes)}, publish=True)
    assert path.read_bytes()[-nbytes:] == model.pattern(0, version, nbytes)
