"""A folder that rclone mounts for writing. It has no attributes of files, one mode for all, and writes back later."""

import model
import pytest
import st_abi
from clients import Rclone, lacking
from model import OLD, new, put_model


@pytest.fixture
def mounted(scratch):
    if missing := lacking("rclone"):
        pytest.skip(missing)
    source = scratch / "source"
    source.mkdir()
    how = ["--vfs-cache-mode", "writes", "--cache-dir", scratch / "cache"]
    with Rclone(source, scratch / "mnt", how) as client:
        yield client.mountpoint


def test_is_changed_in_place_and_recovered(mounted, programs):
    path = put_model(mounted)
    with st_abi.File(path) as f:
        f.update("t1", new(1))
    model.check_file(path, {(0, 1, 0, 0, 0, 0)})
    state = programs.crash_while_applying(path, (0, 1, 0, 0, 0, 0), 2)
    model.check_file(path, {state})
    assert state != OLD and [p.name for p in mounted.glob("*")] == [path.name]


def test_is_published(mounted):
    path = put_model(mounted)
    with st_abi.File(path) as f:
        f.update_all({"t0": new(0)}, publish=True)
        assert f.read("t0") == new(0)
    model.check_file(path, {(1, 0, 0, 0, 0, 0)})
