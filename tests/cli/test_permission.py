"""What another user is told who may not change a file, or only in part."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

OTHER = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, whose files others may not change")


@pytest.fixture
def theirs(model):
    """A model in a folder that another user may enter: that of pytest lies below one which is root's alone."""
    with tempfile.TemporaryDirectory(prefix="libst-permission-") as folder:
        os.chmod(folder, 0o755)
        yield Path(shutil.copy(model, folder))


@pytest.fixture
def refused(stctl, theirs):
    """Another user's command, which fails and leaves everything as it was: what it says."""

    def run(*args):
        before, entries = theirs.read_bytes(), os.listdir(theirs.parent)
        out, err = stctl(*args, code=1, user=OTHER, group=OTHER, extra_groups=[])
        assert out == "" and theirs.read_bytes() == before and os.listdir(theirs.parent) == entries
        return err

    return run


@pytest.mark.parametrize("change", [["meta", "a=b"], ["update", "scalar", "--fill", "1"]], ids=lambda c: c[0])
def test_a_file_that_may_only_be_read(theirs, refused, change):
    theirs.chmod(0o644)
    told = refused(change[0], theirs, *change[1:])
    assert told == f"stctl: cannot open for writing '{theirs}': Permission denied (ST_E_PERMISSION)\n"


def test_a_folder_in_which_nothing_may_be_made(theirs, refused):
    theirs.chmod(0o666)
    told = refused("meta", theirs, "a=b")
    what = f"cannot create a new '{theirs.name}' in the folder '{theirs.parent}'"
    assert told == f"stctl: {what}: Permission denied (ST_E_PERMISSION)\n"


@pytest.mark.parametrize("change", [["meta", "a=b"], ["update", "scalar", "--fill", "1"]], ids=lambda c: c[0])
def test_a_folder_that_may_not_be_read(stctl, theirs, change):
    """Files can be made there, but it cannot be synced."""
    for path in (theirs, theirs.parent):
        os.chown(path, OTHER, OTHER)
    theirs.parent.chmod(0o300)
    before = theirs.read_bytes()
    out, err = stctl(change[0], theirs, *change[1:], code=1, user=OTHER, group=OTHER, extra_groups=[])
    assert err.endswith("that takes the right to read the folder (ST_E_PERMISSION)\n") and err.count("\n") == 1
    assert out == "" and theirs.read_bytes() == before and os.listdir(theirs.parent) == [theirs.name]


def test_of_a_new_file_that_was_not_made_there_is_no_warning(theirs, refused):
    theirs.chmod(0o666)
    theirs.parent.chmod(0o1777)  # where only an owner's file may be replaced
    told = refused("meta", theirs, "a=b")
    assert told.count("\n") == 1 and told.startswith(f"stctl: '{theirs}' belongs to user 0, and its folder is sticky")


def test_of_a_new_file_that_was_made_the_warnings_come_once(stctl, theirs):
    theirs.chmod(0o666)
    theirs.parent.chmod(0o777)
    _, err = stctl("meta", theirs, "a=b", user=OTHER, group=OTHER, extra_groups=[])
    assert err.count("could not be given to group 0") == err.count(f"will belong to user {OTHER}") == 1
    assert err.count("\n") == 2
    assert theirs.stat().st_uid == OTHER


@pytest.mark.parametrize("names", [[], ["--new-names"]], ids=str)
def test_of_new_shards_the_warnings_come_once_each(stctl, theirs, model, names):
    shards = theirs.parent / "shards"
    stctl("shard", model, shards, "--max-size", "100")
    shards.chmod(0o777)
    for file in shards.iterdir():
        file.chmod(0o666)
    _, err = stctl("mv", shards, "half", "renamed", *names, user=OTHER, group=OTHER, extra_groups=[])
    lines = err.splitlines()
    assert len(lines) == len(set(lines)) == 4, err  # two for the shard, two for the index
    assert sum("model.safetensors.index.json" in line for line in lines) == 2


def test_below_a_folder_that_its_user_may_not_search(stctl, model):
    """A path from the working directory leads to the file, and none from the root does."""
    with tempfile.TemporaryDirectory(prefix="libst-permission-") as folder:  # which is root's alone
        inside = Path(folder, "inside")
        inside.mkdir()
        shutil.copy(model, inside / "m.safetensors")
        for path in (inside, inside / "m.safetensors"):
            os.chown(path, OTHER, OTHER)
        who = {"cwd": inside, "user": OTHER, "group": OTHER, "extra_groups": []}
        stctl("shard", "m.safetensors", "shards", "--max-size", "50", **who)
        for path in ("m.safetensors", "shards"):
            assert ": ok (" in stctl("verify", path, **who)[0]
            sizes = stctl.json("compact", path, **who)
            assert sizes["file_size"] == stctl.json("view", path, **who)["file_size"]
            assert "no journals" in stctl("journal", path, **who)[0]
