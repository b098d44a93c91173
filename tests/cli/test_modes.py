"""The modes of what a command makes of models: as with cp, a private model makes no public file. Values are written as
by a shell."""

import stat

import numpy as np
import pytest
from safetensors.numpy import save_file


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def models(stctl, tmp_path):
    """A base, what was tuned of it, shards of the base, and a delta; all for everybody."""
    base, tuned = ({name: np.full(100, i, "u1") for i, name in enumerate("abc", n)} for n in (0, 1))
    save_file(base, tmp_path / "base")
    save_file(tuned, tmp_path / "tuned")
    stctl("shard", tmp_path / "base", tmp_path / "shards", "--max-size", "100B")
    stctl("diff", tmp_path / "base", tmp_path / "tuned", "-o", tmp_path / "delta")
    for path in tmp_path.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return tmp_path


COMMANDS = {
    "shard": (("shard", "base", "new", "--max-size", "100B"), ["base"]),
    "join": (("join", "shards", "new"), ["shards/model-00002-of-00003.safetensors"]),
    "diff": (("diff", "base", "tuned", "-o", "new"), ["base", "tuned"]),
    "diff of shards": (("diff", "shards", "tuned", "-o", "new"), ["shards/model-00001-of-00003.safetensors"]),
    "merge": (("merge", "base", "delta", "-o", "new"), ["base", "delta"]),
    "merge of shards": (
        ("merge", "shards", "delta", "-o", "new"),
        ["shards/model-00003-of-00003.safetensors", "delta"],
    ),
    "patch": (("patch", "base", "delta", "--reverse", "new"), ["base"]),
}
CASES = [(command, secret) for command, (_, secrets) in COMMANDS.items() for secret in secrets]


def made_files(models):
    new = models / "new"
    return list(new.iterdir()) if new.is_dir() else [new]


def run(stctl, models, command, umask):
    stctl(*COMMANDS[command][0], cwd=models, umask=umask)


@pytest.mark.parametrize("command, secret", CASES)
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o604])
def test_what_is_made_has_the_mode_that_its_sources_have_in_common(stctl, models, command, secret, mode):
    (models / secret).chmod(mode)
    run(stctl, models, command, 0o022)
    assert {mode_of(path) for path in made_files(models)} == {mode}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_umask_takes_its_part_of_the_mode(stctl, models, command):
    for path in models.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o666)
    run(stctl, models, command, 0o027)
    assert {mode_of(path) for path in made_files(models)} == {0o640}


def test_nothing_that_is_made_may_be_executed(stctl, models):
    (models / "base").chmod(0o777)
    run(stctl, models, "shard", 0o022)
    assert {mode_of(path) for path in made_files(models)} == {0o644}


def test_the_owner_may_change_what_is_made_of_a_file_that_is_only_read(stctl, models):
    (models / "base").chmod(0o440)
    run(stctl, models, "shard", 0o022)
    assert {mode_of(path) for path in made_files(models)} == {0o640}


@pytest.mark.parametrize("output", ["new.safetensors", "new.npy", "new.raw"])
@pytest.mark.parametrize("umask", [0o022, 0o027])
def test_values_have_the_mode_of_the_umask_as_a_redirection_has_it(stctl, models, output, umask):
    (models / "base").chmod(0o600)
    for there, meant in ((False, 0o666 & ~umask), (True, 0o604)):
        if there:
            (models / output).chmod(0o604)
        stctl("get", "base", "a", "-o", output, cwd=models, umask=umask)
        assert mode_of(models / output) == meant


@pytest.mark.parametrize("command", [command for command in COMMANDS if command != "shard"])
def test_a_file_that_is_replaced_hands_on_its_mode(stctl, models, command):
    for path in models.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    (models / "new").write_bytes((models / "tuned").read_bytes())
    (models / "new").chmod(0o664)
    run(stctl, models, command, 0o022)
    assert mode_of(models / "new") == 0o664
