"""Plans against the disk: bytes written, copied, shared, the most that was taken at once; commits that just fit."""

import os
import subprocess

import disk
import pytest
import st_abi

PROGRAM = st_abi.BUILD / "tests" / "storage" / "plan_on_disk"
SIZE = {"ext4": 160 << 20, "xfs": 400 << 20, "btrfs": 400 << 20, "tmpfs": 160 << 20}
TRANSACTIONS = {"small": 20, "full": 1000}.get(os.environ.get("ST_TEST_BOUND", ""), 30)


@pytest.fixture(params=SIZE)
def small_disk(request, make_disk, scratch):
    """A filesystem that is quickly full, and that nobody else writes to."""
    if request.param != "tmpfs":
        none_for_root = ("-m", "0") if request.param == "ext4" else ()
        yield make_disk(request.param, size=SIZE[request.param], options=none_for_root).mount()
        return
    (scratch / "tmpfs").mkdir()
    with disk.mounted("none", scratch / "tmpfs", "tmpfs", data=f"size={SIZE['tmpfs']}") as directory:
        yield directory


@pytest.mark.skipif(not PROGRAM.exists(), reason="needs a build tree")
@pytest.mark.parametrize("journal", ["redo", "undo"])
@pytest.mark.parametrize("shards", [["0"], ["4"], ["4", "new-names"]], ids=["file", "shards", "new-names"])
def test_disk_does_what_the_plan_says(small_disk, shards, journal, bound, tell):
    ran = subprocess.run(
        [PROGRAM, small_disk, str(bound.seed), str(TRANSACTIONS), *shards],
        env={**os.environ, "ST_JOURNAL": journal},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    tell(TRANSACTIONS, "random transactions against their plans", ran.stdout.strip())
