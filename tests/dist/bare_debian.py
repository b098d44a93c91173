"""A Debian with nothing but what every Debian has, and packages put into a copy of it that is thrown away."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from conftest import BUILD
from roots import Root

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


class BareDebian:
    """Commands in it see what those before have changed."""

    def __init__(self, root: Root, scratch: Path, dist: Path):
        archives = BUILD / "dist" / "apt"
        for folder in (scratch / "changes", scratch / "work", scratch / "root", archives / "partial"):
            folder.mkdir(parents=True, exist_ok=True)
        self.folder = scratch / "changes" / "work"
        self.folder.mkdir()
        where = {"BARE": root.make(), "UPPER": scratch, "DIST": dist, "ARCHIVES": archives}
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
