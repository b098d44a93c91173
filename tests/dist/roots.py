"""Bare Debians in build/cache/roots, and how commands run in them. Of this machine they see only what is named."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import CACHE, ROOT, run

# In namespaces of its own, so nothing stays mounted, and there is no network.
ENTER = """
set -e
mount --make-rprivate /
mkdir -p "$BARE/srv/libst/tests" "$BARE/srv/given" "$BARE$SITE_THERE"
mount --bind "$SITE" "$BARE$SITE_THERE"
mount --bind "$TESTS" "$BARE/srv/libst/tests"
mount -o remount,bind,ro "$BARE/srv/libst/tests"
mount --bind "$GIVEN" "$BARE/srv/given"
mount -t proc proc "$BARE/proc"
mount --rbind /dev "$BARE/dev"
mount --bind "$SCRATCH" "$BARE/tmp"
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp LIBST_TEST_INSTALLED=yes ST_TEST_BOUND=small \
  PYTHONDONTWRITEBYTECODE=1 chroot "$BARE" sh -c 'cd /srv/libst && exec "$@"' sh "$@"
"""

# Programs of ARM are run by qemu: in a user namespace of its own, so that no other program of this machine sees it. The
# kernel opens qemu here (F), so the root need not have it.
OTHER_MACHINE = ["--user", "--map-root-user", "--mount", "--net", "--pid", "--fork"]
EMULATE = r"""
set -e
mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
header='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
of_it='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
echo ":arm64:M::$header:$of_it:$(command -v qemu-aarch64-static):F" >/proc/sys/fs/binfmt_misc/register
"""


def can_emulate() -> bool:
    return subprocess.run(["unshare", *OTHER_MACHINE, "bash", "-c", EMULATE], capture_output=True).returncode == 0


@dataclass(frozen=True)
class Root:
    suite: str
    python: str
    packages: tuple[str, ...]
    machine: str = ""  # as Debian calls it; else this one

    @property
    def path(self) -> Path:
        return CACHE / "roots" / "-".join([self.suite, *([self.machine] if self.machine else []), *self.packages])

    def make(self) -> Path:
        if os.geteuid() != 0 or not shutil.which("debootstrap"):
            pytest.skip("a bare root needs debootstrap, and root to enter it")
        if self.machine and not can_emulate():
            pytest.skip("programs of another machine need qemu-user-static, and a kernel that lends a namespace (6.7)")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.with_suffix(".lock").open("w") as lock:  # another clone may make it now
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (self.path / "made").exists():
                self._make()
        return self.path

    def _make(self) -> None:
        new = self.path.with_suffix(".new")
        for place in (new, self.path):
            shutil.rmtree(place, ignore_errors=True)
        packages = [f"--include={','.join(self.packages)}"] if self.packages else []
        foreign = ["--foreign", f"--arch={self.machine}"] if self.machine else []
        run("debootstrap", "--variant=minbase", *foreign, *packages, self.suite, new)
        if foreign:  # what is left to do is to configure it, by scripts of that machine: it does without
            for package in sorted(new.glob("var/cache/apt/archives/*.deb")):
                run("dpkg-deb", "--extract", package, new)
        (new / "made").touch()
        new.rename(self.path)

    def run(self, *words: object, scratch: Path, site: Path | None = None, given: Path | None = None) -> str:
        """The output of a command there.

        `scratch` is its /tmp: on a disk, since libst reads memory filesystems in other ways. Python finds what is in
        `site`, and `given` is at /srv/given.
        """
        empty = scratch / "empty"
        empty.mkdir(exist_ok=True)
        env = {"BARE": self.path, "SITE": site or empty, "GIVEN": given or empty, "SCRATCH": scratch}
        env |= {"TESTS": ROOT / "tests", "SITE_THERE": f"/usr/local/lib/python{self.python}/dist-packages"}
        apart, enter = (OTHER_MACHINE, EMULATE + ENTER) if self.machine else (["--mount", "--net"], ENTER)
        done = subprocess.run(
            ["unshare", *apart, "bash", "-c", enter, "bash", *map(str, words)],
            env=os.environ | {name: str(value) for name, value in env.items()}, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        print(done.stdout)
        assert done.returncode == 0, done.stdout
        return done.stdout


BARE = Root("bookworm", "3.11", ())
OLDEST = Root("bullseye", "3.9", ("python3",))  # the oldest Debian that its mirror has
OLDEST_ARM = Root("bullseye", "3.9", ("python3",), "arm64")
COMPILER = Root("bookworm", "3.11", ("g++", "python3", "python3-pip"))
