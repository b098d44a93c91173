"""stctl recover, and what a writer that died leaves."""

import os

import numpy as np
from cli_files import stock


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
