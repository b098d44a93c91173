"""stctl recover, and what a writer that died leaves."""

import json
import os
import pathlib
import shutil
import signal
import tempfile

import numpy as np
import pytest
from cli_files import stock
from safetensors.numpy import save_file


def journals(model):
    folder = model.with_name(model.name + ".st-journal")
    return sorted(p.name for p in folder.iterdir()) if folder.exists() else []


def assert_recovered(model, arrays):
    now = stock(model)
    for name, array in (arrays | {"layer.0.weight": np.full((3, 4), 7, np.float32)}).items():
        assert now[name].tobytes() == array.tobytes(), name
    assert journals(model) == []


def test_nothing_to_recover(stctl, model):
    before = model.read_bytes()
    assert stctl("recover", model) == (f"{model}: nothing to recover\n", "")
    assert stctl.json("recover", model) == {
        "files": [{"file": str(model), "ok": True, "findings": []}],
        "ok": True,
    }
    assert model.read_bytes() == before


def test_nothing_can_be_recovered_of_what_is_no_model(stctl, model, tmp_path):
    (tmp_path / "garbage").write_bytes(b"\xff" * 100)
    os.mkfifo(tmp_path / "pipe")
    stctl("shard", model, tmp_path / "shards", "--max-size", "100")
    wrong = {"garbage": "ST_E_HEADER_TOO_LARGE", "pipe": "ST_E_NOT_REGULAR", "/dev/null": "ST_E_NOT_REGULAR"}
    for name, status in wrong.items():
        out, err = stctl("recover", tmp_path / name, model, tmp_path / "shards", code=1)
        assert out == f"{model}: nothing to recover\n{tmp_path / 'shards'}: nothing to recover\n"
        assert err.startswith("stctl: ") and err.endswith(f"({status})\n")


def test_a_committed_journal_is_applied(stctl, crashed, arrays):
    out, err = stctl("recover", crashed)
    assert err == ""
    lines = out.splitlines()
    assert lines[-1] == f"{crashed}: recovered (1 finding)"
    assert len(lines) == 2 and lines[0].startswith(f"{crashed}: ")
    assert_recovered(crashed, arrays)
    assert stctl("recover", crashed)[0] == f"{crashed}: nothing to recover\n"


def test_json_has_the_findings(stctl, crashed, arrays):
    (file,) = stctl.json("recover", crashed)["files"]
    assert (file["ok"], len(file["findings"])) == (True, 1)
    assert file["findings"][0]["message"]
    assert_recovered(crashed, arrays)


def test_opening_recovers_too_and_says_so_when_asked(stctl, crashed, arrays):
    out, err = stctl("get", crashed, "layer.0.weight", "--slice", "0,0", "--verbose")
    assert out == "7.0\n"
    assert err.startswith("stctl: ")
    assert_recovered(crashed, arrays)


def test_stats_count_the_recovery(stctl, crashed):
    assert stctl.json("stats", crashed)["recoveries"] == 1
    assert stctl.json("stats", crashed)["recoveries"] == 0


def test_verify_reports_a_journal_and_leaves_it(stctl, crashed):
    before, waiting = crashed.read_bytes(), journals(crashed)
    result = stctl.raw("verify", "--json", crashed)
    assert result.returncode == 4 and b"journal" in result.stdout
    out, err = stctl("verify", crashed, code=4)
    assert err == ""
    assert out.splitlines()[-1].startswith(f"{crashed}: a committed journal waits")
    assert out.endswith("(ST_E_NEEDS_RECOVERY)\n")
    assert crashed.read_bytes() == before
    assert journals(crashed) == waiting


def test_several_files(stctl, crashed, arrays, tmp_path):
    missing = tmp_path / "missing.safetensors"
    out, err = stctl("recover", missing, crashed, code=1)
    assert "ST_E_NO_FILE" in err and f"{crashed}: recovered" in out
    assert_recovered(crashed, arrays)


def test_a_journal_on_a_read_only_medium_is_exit_code_4(stctl, crashed, arrays, read_only_mount):
    there = read_only_mount / crashed.name
    for command in [["ls", there], ["get", there, "scalar"], ["recover", there]]:
        out, err = stctl(*command, code=4)
        assert "ST_E_NEEDS_RECOVERY" in err
    assert stctl.json("info", there, code=4)["error"]["exit_code"] == 4
    stctl("recover", crashed)
    assert_recovered(crashed, arrays)
    assert stctl("ls", there)[0]


OTHER, THIRD = 65534, 1234


@pytest.fixture
def theirs(stctl, arrays, killer):
    """A file of root's that anybody may write, in a folder where anybody may make files. Another user's change of it is
    committed, and not yet in the file: the writer was killed."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to be another user")
    with tempfile.TemporaryDirectory(prefix="libst-public-") as made:  # that of pytest lets nobody else in
        folder = pathlib.Path(made)
        folder.chmod(0o1777)
        shutil.copy(killer, folder / "killer.so")
        model = folder / "model.safetensors"
        save_file(arrays, model)
        model.chmod(0o666)
        environment = {
            **os.environ,
            "LD_PRELOAD": str(folder / "killer.so"),
            "KILL_WRITE_TO": str(model),
            "KILL_AT": "1",
        }
        environment["KILL_WRITE_TO"] = str(model)
        result = stctl.raw("update", model, "layer.0.weight", "--fill", "7", env=environment, **as_user(OTHER))
        assert result.returncode == -signal.SIGKILL, result
        yield model


def as_user(uid):
    return {"user": uid, "group": uid, "extra_groups": []}


def test_nothing_is_published_over_what_another_user_committed(stctl, theirs, arrays):
    before = theirs.read_bytes()
    changes = [["rm", theirs, "scalar"], ["meta", theirs, "q=1"], ["mv", theirs, "scalar", "s"], ["compact", theirs]]
    changes += [["put", theirs, "--from", theirs], ["update", theirs, "--from", theirs, "scalar"]]
    for uid in (0, THIRD):
        for change in [*changes, ["update", theirs, "scalar", "--fill", "1"]]:
            result = stctl.raw(*change, **as_user(uid))
            assert result.returncode == 1 and b"ST_E_JOURNAL" in result.stderr, result
            assert b"user 65534 finishes it" in result.stderr
            assert result.stderr.count(b"\n") == 1  # no warning that it was passed over
        result = stctl.raw("recover", theirs, **as_user(uid))
        assert result.returncode == 1 and b"not recovered: " in result.stderr and b"recovered (" not in result.stdout
        told = json.loads(stctl.raw("recover", "--json", theirs, **as_user(uid)).stdout)
        (file,) = told["files"]
        assert not told["ok"] and not file["ok"] and file["error"]["status"] == "ST_E_JOURNAL"
        assert [finding["level"] for finding in file["findings"]] == ["error"]
    assert theirs.read_bytes() == before
    assert stctl.raw("recover", theirs, **as_user(OTHER)).returncode == 0
    assert_recovered(theirs, arrays)
    stctl("rm", theirs, "scalar")


@pytest.mark.parametrize("change", [["rm", "scalar"], ["compact"]], ids=lambda c: c[0])
def test_a_folder_that_is_passed_over_is_told_once(stctl, model, change):
    model.parent.chmod(0o1777)
    folder = model.with_name(model.name + ".st-journal")
    folder.mkdir()
    folder.chmod(0o702)  # anybody may write to it, so nobody trusts it
    command, *rest = change
    out, err = stctl(command, model, *rest)
    assert out and err.count("it was passed over") == err.count("\n") == 1
    assert stctl("meta", "-q", model, "a=b")[1] == ""


def test_so_is_that_of_a_shard_that_is_opened_late(stctl, model, tmp_path):
    shards = tmp_path / "shards"
    stctl("shard", model, shards, "--max-size", "100")
    shards.chmod(0o1777)
    last = max(shards.glob("*.safetensors"))
    folder = last.with_name(last.name + ".st-journal")
    folder.mkdir()
    folder.chmod(0o702)
    told = f"stctl: warning: the journal folder '{folder}' is not to be trusted"
    names = {f.name: stctl("ls", f, "--names")[0].split() for f in shards.glob("*.safetensors") if f != last}
    for name in (name for of_one in names.values() for name in of_one):
        assert stctl("get", shards, name)[1] == ""
    for command in (["get", shards, stctl("ls", last, "--names")[0].split()[0]], ["ls", shards]):
        assert stctl(*command)[1].count(told) == 1


def test_what_was_moved_aside_is_named_to_those_whom_it_keeps_out(stctl, theirs):
    (journal,) = journals(theirs)
    folder = theirs.with_name(theirs.name + ".st-journal")
    (folder / journal).rename(folder / (journal + ".bad"))
    out, err = stctl("update", theirs, "scalar", "--fill", "1", code=1)
    assert "ST_E_JOURNAL" in err and f"{journal}.bad" in err and "finishes" not in err
    out, err = stctl("recover", theirs)
    assert "nothing waits to be recovered" in out and out.endswith("nothing was recovered (1 finding)\n")
    stctl("meta", theirs, "q=1")
    (folder / (journal + ".bad")).unlink()
    folder.rmdir()
    stctl("update", theirs, "scalar", "--fill", "1")


def test_a_missing_shard_is_told_as_by_all_commands(stctl, model, tmp_path):
    out = tmp_path / "sharded"
    stctl("shard", model, out, "--max-size", "100")
    sorted(out.glob("*.safetensors"))[1].unlink()
    for command in ("ls", "recover"):
        answer = stctl.json(command, out, code=1)
        assert answer.get("files", [answer])[0]["error"]["status"] == "ST_E_SHARD_MISSING"
    assert "sharded/model-00002-of-" in stctl("recover", out, code=1)[1]


def test_new_files_of_dead_writers_are_told_and_removed(stctl, model, tmp_path):
    for infix in ("tmp", "new"):
        (tmp_path / f".{model.name}.st-{infix}-0123456789abcdef").write_bytes(b"half")
    out = stctl("recover", model)[0]
    assert out.count("it never took its place") == 2 and "(2 findings)" in out
    model.with_name(model.name + ".st-journal").mkdir()
    assert "empty journal folder" in stctl("recover", model)[0]
    assert list(tmp_path.iterdir()) == [model]
    assert stctl("recover", model)[0] == f"{model}: nothing to recover\n"


def test_the_new_file_of_a_dead_writer_is_told_and_removed_where_no_file_was(stctl, tmp_path):
    model = tmp_path / "model.safetensors"
    (tmp_path / f".{model.name}.st-tmp-0000000000000001").write_bytes(b"half")
    out, err = stctl("recover", model)
    assert "it never took its place" in out and out.endswith(f"{model}: recovered (1 finding)\n") and err == ""
    assert list(tmp_path.iterdir()) == []
    assert "ST_E_NO_FILE" in stctl("recover", model, code=1)[1]


def test_a_list_of_old_shards_that_are_gone_is_told_and_removed(stctl, model, tmp_path):
    out = tmp_path / "sharded"
    stctl("shard", model, out, "--max-size", "100")
    before = set(out.glob("*.safetensors"))
    stctl("mv", out, "half", "renamed", "--new-names")
    (old,) = before - {out / tensor["shard"] for tensor in stctl.json("ls", out)["tensors"]}
    old.unlink()
    assert "list of old shards" in stctl("recover", out)[0]
    assert not list(out.glob("*.st-old"))
    assert stctl("recover", out)[0] == f"{out}: nothing to recover\n"


def test_an_empty_journal_on_a_read_only_medium_is_nothing_to_recover(stctl, crashed, read_only_mount):
    """As a writer leaves it that was killed between two changes."""
    (journal,) = crashed.with_name(crashed.name + ".st-journal").iterdir()
    with open(journal, "r+b") as f:
        f.write(bytes(512))
    there = read_only_mount / crashed.name
    assert stctl("recover", there) == (f"{there}: nothing to recover\n", "")
    assert journals(crashed)
