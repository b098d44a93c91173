"""Root changes a checkpoint in a folder of somebody else's, who exchanges that folder for a link into root's own.

Whatever is asked for is done in the folder that the path led to, or not at all: nothing of root's changes, and nothing
of his comes into root's folder. ST_FLIP_SECONDS is for how long each operation is tried, in each of two ways.
"""

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import libst
import numpy as np
import pytest

SECONDS = float(os.environ.get("ST_FLIP_SECONDS", "0.3"))
OTHER = 65534
OLD = {"a": np.zeros(3000, np.uint8), "b": np.ones(4000, np.uint8)}
NEW = {"a": np.full(3000, 7, np.uint8), "b": np.full(4000, 8, np.uint8)}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who is to be misled by another user")


@contextlib.contextmanager
def place_for_both():
    """A folder that another user may enter: that of pytest lies below one which is root's alone."""
    with tempfile.TemporaryDirectory(prefix="libst-two-users-") as folder:
        os.chmod(folder, 0o711)
        yield Path(folder)


@pytest.fixture(scope="module")
def program():
    with place_for_both() as folder:
        binary = folder / "exchanger"
        subprocess.run(["cc", "-O1", str(Path(__file__).with_name("exchanger.c")), "-o", str(binary)], check=True)
        yield binary


class Scene:
    """`his/ckpt`, a folder of the other user's with a checkpoint; `his/link`, which leads to root's `mine`."""

    def __init__(self, program, folder):
        self.his, self.mine = folder / "his", folder / "mine"
        for made in (self.his, self.his / "ckpt"):
            made.mkdir()
        self.mine.mkdir(0o700)
        self.source = folder / "source.safetensors"
        libst.save(self.source, OLD)
        libst.save(folder / "new.safetensors", NEW)
        self.delta = folder / "delta.safetensors"
        libst.diff(self.source, folder / "new.safetensors", self.delta)
        self.shards = folder / "shards"
        libst.reshard(self.source, self.shards, max_shard_size=3500)
        (self.his / "link").symlink_to(self.mine)
        for name in ("model.safetensors", *os.listdir(self.shards)):
            (self.mine / name).write_bytes(b"root's own")
            (self.mine / name).chmod(0o600)
        self.before = self.state()
        self.ckpt = self.his / "ckpt"
        self.fill()
        os.chown(self.his, OTHER, OTHER)
        self.process = subprocess.Popen(
            [str(program), str(self.ckpt), str(self.his / "link")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            user=OTHER,
            group=OTHER,
            extra_groups=[],
        )

    def fill(self):
        for entry in self.ckpt.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        shutil.copy(self.source, self.ckpt / "model.safetensors")
        for shard in self.shards.iterdir():
            shutil.copy(shard, self.ckpt)
        for entry in (self.ckpt, *self.ckpt.iterdir()):
            os.chown(entry, OTHER, OTHER)

    def state(self):
        def of(path):
            s = path.lstat()
            return s.st_ino, s.st_uid, s.st_mode, path.read_bytes() if path.is_file() else None

        return {path.relative_to(self.mine): of(path) for path in self.mine.rglob("*")}

    def tell(self, command):
        self.process.stdin.write(command)
        assert self.process.stdout.read(1) == b"."

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=60) == 0
        self.process.stdout.close()


@pytest.fixture
def scene(program):
    with place_for_both() as folder:
        scene = Scene(program, folder)
        yield scene
        scene.close()


def change(f, publish):
    with f.transaction() as t:
        for name, array in NEW.items():
            t.update(name, array)
            if publish:
                t.put("new " + name, array)


def patch(scene):
    with libst.open(scene.ckpt / "model.safetensors", "r+") as f:
        change(f, False)


def publish(scene):
    with libst.open(scene.ckpt / "model.safetensors", "r+") as f:
        change(f, True)


def patch_shards(scene):
    with libst.open(scene.ckpt / "model.safetensors.index.json", "r+") as f:
        change(f, False)


def publish_shards(scene):
    with libst.open(scene.ckpt / "model.safetensors.index.json", "r+") as f:
        change(f, True)


def save(scene):
    libst.save(scene.ckpt / "model.safetensors", NEW)


def leave_rubbish(scene):
    """What a dead writer leaves: a temporary, and an empty journal."""
    (scene.ckpt / ".model.safetensors.st-tmp-0123456789abcdef").touch()
    journals = scene.ckpt / "model.safetensors.st-journal"
    journals.mkdir(0o700, exist_ok=True)
    (journals / "0123456789abcdef").touch(0o600)


def recover(scene):
    libst.recover(scene.ckpt / "model.safetensors")


def reshard(scene):
    libst.reshard(scene.source, scene.ckpt / "parts", max_shard_size=3500)


def apply_delta(scene):
    libst.patch(scene.ckpt / "model.safetensors", scene.delta)


@pytest.mark.parametrize("way", ["once", "freely"])
@pytest.mark.parametrize(
    "operation", [patch, publish, patch_shards, publish_shards, save, recover, reshard, apply_delta]
)
def test_the_folder_is_exchanged_around(operation, way, scene):
    if operation is recover:
        leave_rubbish(scene)
    operation(scene)  # while nobody exchanges anything it can be done
    assert scene.state() == scene.before
    scene.fill()
    hits, tries, done = [], 0, 0
    until = time.monotonic() + SECONDS
    while time.monotonic() < until or tries < 5:
        tries += 1
        if operation is recover:
            leave_rubbish(scene)
        scene.tell(b"o" if way == "once" else b"f")
        try:
            operation(scene)
            done += 1
        except (libst.Error, OSError):
            pass  # nothing was done, or not here
        finally:
            scene.tell(b"s")
        now = scene.state()
        if now != scene.before:
            hits.append(sorted(str(path) for path in now.keys() ^ scene.before.keys()) or "a file of root's")
            shutil.rmtree(scene.mine)
            pytest.fail(f"hit in try {tries}, {done} of them done: {hits[0]}")
        scene.fill()
    assert not hits
