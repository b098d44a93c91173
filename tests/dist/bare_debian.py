"""A Debian with nothing but what every Debian has, and packages put into a copy of it that is thrown away."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import BUILD, run

# In a mount namespace of its own, so nothing stays mounted. What is written goes to UPPER, never to the root.
ENTER = """
set -e
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$BARE,upperdir=$UPPER/changes,workdir=$UPPER/work" "$UPPER/root"
cd "$UPPER/root"
mount -t proc proc proc
mount --rbind /dev dev
mkdir -p srv/dist var/cache/apt/archives
mount --bind "$DIST" srv/dist
mount --bind "$ARCHIVES" var/cache/apt/archives
if [ -f /etc/resolv.conf ]; then cp -L /etc/resolv.conf etc/resolv.conf; fi
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 \
  ${http_proxy:+"http_proxy=$http_proxy"} chroot . bash -euo pipefail -c "cd /work && $1"
"""


def bare_root(suite: str) -> Path:
    """Made once, kept in build/dist/roots."""
    if os.geteuid() != 0 or not shutil.which("debootstrap"):
        pytest.skip("a bare root needs debootstrap, and root to enter it")
    root = BUILD / "dist" / "roots" / suite
    if not (root / "made").exists():
        shutil.rmtree(root, ignore_errors=True)
        root.parent.mkdir(parents=True, exist_ok=True)
        run("debootstrap", "--variant=minbase", suite, root)
        (root / "made").touch()
    return root


class BareDebian:
    """Commands in it see what those before have changed."""

    def __init__(self, suite: str, scratch: Path, dist: Path):
        archives = BUILD / "dist" / "apt"
        for folder in (scratch / "changes", scratch / "work", scratch / "root", archives / "partial"):
            folder.mkdir(parents=True, exist_ok=True)
        self.folder = scratch / "changes" / "work"
        self.folder.mkdir()
        where = {"BARE": bare_root(suite), "UPPER": scratch, "DIST": dist, "ARCHIVES": archives}
        self.env = os.environ | {name: str(path) for name, path in where.items()}

    def put(self, name: str, text: str) -> None:
        """A file in /work, where commands run."""
        (self.folder / name).write_text(text)

    def __call__(self, script: str) -> str:
        done = subprocess.run(
            ["unshare", "--mount", "bash", "-c", ENTER, "bash", script],
            env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{script}\nanswered {done.returncode}:\n{done.stdout}"
        return done.stdout
