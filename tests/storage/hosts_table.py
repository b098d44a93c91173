#!/usr/bin/env python3
"""README's table of filesystems that several hosts use.

    hosts_table.py            writes it into README.md
    hosts_table.py --check    fails if README.md has another

`test_hosts.py` holds each row against `stctl io` and against what a rig of this filesystem shows.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

README = Path(__file__).resolve().parents[2] / "README.md"
HEADING = "### Workers on several hosts\n\n"
COLUMNS = (
    "filesystem",
    "writers on one host",
    "writers on several hosts",
    "other readers by libst",
    "stock readers",
)

# What a sentence of `stctl io` begins with, and what that means for writers on several hosts. Where it leaves the
# answer to the filesystem, a rig has tried its locks.
SAID = {
    "none, ": "no other hosts",
    "read only: ": "no",
    "read and write: ": "yes",
    "read and write, if the volume ": "yes, with two options of the volume off",
    "read, and write if all hosts mount it with -dlm": "if all hosts mount it with `-dlm`",
    "read, and write if ": "if it locks",
}
NOT_TRIED = "if it locks, else refused"


class Row(NamedTuple):
    filesystems: str
    says: str  # the beginning of what `stctl io` says
    locks_here: bool | None = None  # do locks exclude on one host? None: nobody has tried
    locks_elsewhere: bool | None = None
    libst: str = "yes"  # when a reader by libst sees a change
    stock: str = "yes"
    at_once: bool = True  # and do they hold while descriptors of the file are closed and opened beside them?
    instead: tuple[str, str] | None = None  # of the two cells about locks

    def cells(self):
        if self.instead:
            return self.filesystems, *self.instead, self.libst, self.stock
        here = {True: "yes", False: "no", None: "not tried" if self.says == "read only: " else NOT_TRIED}
        if not self.at_once:
            here[True] = "one at a time"
        elsewhere = SAID[self.says]
        if elsewhere == "if it locks" and self.locks_elsewhere:
            elsewhere = "yes"
        return self.filesystems, here[self.locks_here], elsewhere, self.libst, self.stock


OPEN, REFRESH = "after a new open", "after a refresh"
OLD = "old bytes, perhaps for ever: its clients keep pages over a new open"
SELDOM = "seldom old bytes, until the next change"
EITHER = "old or new bytes, or pages of both: its clients may keep pages over a new open"
ROWS = {
    "disk": Row("ext4, xfs, btrfs, tmpfs", "none, ", True),
    "glusterfs": Row("GlusterFS", "read and write, if the volume ", True, True, f"{REFRESH}, or a new open", OLD),
    "glusterfs-fresh-opens": Row(
        "GlusterFS with `--fopen-keep-cache=off`",
        "read and write, if the volume ",
        True,
        True,
        f"{REFRESH}, or a new open",
        OPEN,
    ),
    # The kernel calls its mounts "fuse", as those of many others.
    "moosefs": Row("MooseFS", "read, and write if ", True, True, REFRESH, OPEN),
    "cephfs": Row("CephFS by ceph-fuse", "read and write: ", True, True, f"{REFRESH}, or a new open", EITHER),
    # Its locks exclude, and get lost: test_juicefs_loses_locks.
    "juicefs": Row("JuiceFS", "read only: ", True, True, f"{REFRESH}; {SELDOM}", EITHER, at_once=False),
    "others": Row(
        "NFS, CephFS by its kernel client, Lustre and other FUSE",
        "read, and write if ",
        libst=REFRESH,
        stock="as its caches go",
    ),
    "smb": Row(
        "SMB by the kernel's client",
        "read, and write if ",
        libst=REFRESH,
        stock="as its caches go",
        instead=(
            "saves and publishes alone: its locks keep a change in place from the writer's own journal",
            "not tried",
        ),
    ),
    "seaweedfs": Row(
        "SeaweedFS",
        "read, and write if all hosts mount it with -dlm",
        libst=REFRESH,
        stock="as its caches go",
    ),
    "sshfs": Row("sshfs", "read only: ", True, False, f"{REFRESH}, on one host", f"{OPEN}, on one host"),
    # It loses a file that one process removes while another has it open.
    "rclone": Row(
        "rclone",
        "read only: ",
        libst="not beside a writer",
        stock=f"{OPEN}, on one host",
        instead=("one process at a time", "no"),
    ),
    "bucket": Row("gcsfuse and other mounts of buckets", "read only: ", libst=OPEN, stock=OPEN),
}


def table():
    rows = [COLUMNS, ["---"] * len(COLUMNS), *(row.cells() for row in ROWS.values())]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in rows)


def main():
    text = README.read_text()
    before, heading, rest = text.partition(HEADING)
    wanted = before + heading + table() + rest[rest.index("\n\n") + 1 :]
    if sys.argv[1:] != ["--check"]:
        README.write_text(wanted)
    elif text != wanted:
        sys.exit("README.md has another table of several hosts: run tests/storage/hosts_table.py")


if __name__ == "__main__":
    main()
