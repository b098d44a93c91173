"""stctl journal: the bytes of journals, told field by field."""

import ctypes
import json
import os
import resource
import shutil
import signal
import struct
import subprocess

import numpy as np
import pytest
from safetensors.numpy import save_file

hash64 = ctypes.CDLL("libxxhash.so.0").XXH3_64bits
hash64.argtypes, hash64.restype = (ctypes.c_char_p, ctypes.c_size_t), ctypes.c_uint64


def folder_of(model):
    return model.with_name(model.name + ".st-journal")


def the_journal(stctl, model):
    (journal,) = stctl.json("journal", model)["journals"]
    return journal, {field["name"]: field for field in journal["fields"]}


def number_at(path, offset):
    return struct.unpack_from("<Q", path.read_bytes(), offset)[0]


def test_none(stctl, model):
    assert stctl("journal", model) == (f"{model}: no journals\n", "")
    assert stctl.json("journal", model) == {"file": str(model), "journals": []}


def test_of_a_file_that_something_is_mounted_over(stctl, crashed, may_mount):
    """No path from the root leads to it, but one from a working directory does, and one by /proc."""
    if not may_mount:
        pytest.skip("needs root, who may mount")
    folder, name = crashed.parent, crashed.name
    (folder / "link").symlink_to(name)
    over = folder / "over"
    over.mkdir()
    shutil.copy(crashed, over)
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, cwd=folder) as there:
        below = f"/proc/{there.pid}/cwd"
        subprocess.run(["mount", "--bind", over, folder], check=True)
        try:
            for path in (name, "link", ".", f"{below}/{name}", f"{below}/link", below):
                (journal,) = stctl.json("journal", path, cwd=below)["journals"]
                assert journal["state"] == "committed", path
            assert stctl("journal", crashed, cwd=below)[0].endswith(": no journals\n")
        finally:
            subprocess.run(["umount", folder], check=True)
            there.stdin.close()


def test_a_committed_one(stctl, crashed):
    before = crashed.read_bytes()
    journal, fields = the_journal(stctl, crashed)
    assert (journal["state"], journal["kind"]) == ("committed", "redo")
    (path,) = folder_of(crashed).iterdir()
    assert (journal["file"], journal["size"]) == (str(path), path.stat().st_size)
    assert fields["inode"]["meaning"].startswith(f"{crashed.stat().st_ino}:")
    assert number_at(path, fields["inode"]["offset"]) == crashed.stat().st_ino
    assert number_at(path, fields["size"]["offset"]) == len(before)
    assert fields["ranges"]["meaning"] == "1 range"
    assert fields["manifest hash"]["meaning"].endswith(": right")
    new = np.full((3, 4), 7, np.float32).tobytes()
    payload = fields["payload 0"]
    assert path.read_bytes()[payload["offset"] : payload["offset"] + payload["size"]] == new
    assert payload["meaning"] == "the new bytes; hash right"
    assert fields["sectors 0"]["meaning"].endswith("hash right")
    assert number_at(path, fields["range 0: length"]["offset"]) == len(new)
    offsets = [field["offset"] for field in journal["fields"]]
    assert offsets == sorted(offsets)
    assert crashed.read_bytes() == before, "looking changes nothing"
    assert the_journal(stctl, crashed)[0] == journal


def test_as_a_dump(stctl, crashed):
    (path,) = folder_of(crashed).iterdir()
    out, _ = stctl("journal", crashed)
    lines = out.splitlines()
    assert lines[0] == f"{path}: committed, redo"
    assert lines[1].startswith("00000000  6c 69 62 73 74 20 6a 6f 75 72 6e 61 6c 20 32 00   magic")
    data = path.read_bytes()
    for line in lines[1:]:
        if line.startswith(" "):
            continue
        at, shown = int(line[:8], 16), bytes.fromhex(line[10:58])
        assert data[at : at + len(shown)] == shown, line
    assert stctl("journal", path)[0] == out, "by its own name too"


def damage(stctl, crashed, name):
    """Change the first byte of a field. Answers the journal and its fields from then on."""
    _, fields = the_journal(stctl, crashed)
    (path,) = folder_of(crashed).iterdir()
    data = bytearray(path.read_bytes())
    data[fields[name]["offset"]] ^= 1
    path.write_bytes(data)
    return the_journal(stctl, crashed)


def test_a_damaged_payload_and_a_damaged_record(stctl, crashed):
    _, fields = damage(stctl, crashed, "payload 0")
    assert fields["payload 0"]["meaning"] == "the new bytes; hash WRONG"
    journal, fields = damage(stctl, crashed, "flags")
    assert journal["state"] == "damaged"
    assert "libst will not apply it" in fields["commit record"]["meaning"]


def test_a_damaged_manifest(stctl, crashed):
    _, fields = damage(stctl, crashed, "range 0: length")
    assert fields["manifest hash"]["meaning"].endswith(": WRONG")


def test_those_of_shards(stctl, tmp_path, killer):
    whole, tuned, folder = tmp_path / "whole.safetensors", tmp_path / "tuned.safetensors", tmp_path / "sharded"
    save_file({name: np.zeros(64, np.float32) for name in "abc"}, whole)
    save_file({name: np.ones(64, np.float32) for name in "abc"}, tuned)
    stctl("shard", whole, folder, "--max-size", "300")
    shards = sorted(p.name for p in folder.glob("*.safetensors"))
    environment = {**os.environ, "LD_PRELOAD": str(killer), "KILL_WRITE_TO": str(folder / shards[0]), "KILL_AT": "1"}
    assert stctl.raw("update", folder, "--from", tuned, env=environment).returncode == -signal.SIGKILL
    journals = stctl.json("journal", folder)["journals"]
    assert sorted(j["kind"] for j in journals) == ["redo"] * 3 + ["super-journal"]
    (decision,) = [{f["name"]: f["meaning"] for f in j["fields"]} for j in journals if j["kind"] == "super-journal"]
    index = "model.safetensors.index.json"
    assert decision["manifest"] == f"{index}, with its shards {' '.join(shards)}"
    parts = [{f["name"]: f["meaning"] for f in j["fields"]} for j in journals if j["kind"] == "redo"]
    assert {part["flags"] for part in parts} == {"2: redo, a part of several"}
    assert {part["index"] for part in parts} == {f"{index}: its super-journal decides"}


def test_those_of_shards_whose_elements_change(stctl, tmp_path, killer):
    whole, tuned, delta = (tmp_path / f"{name}.safetensors" for name in ("whole", "tuned", "delta"))
    folder = tmp_path / "sharded"
    values = {name: np.zeros(4096, np.float32) for name in "ab"}
    save_file(values, whole)
    for value in values.values():
        value[::500] = 1
    save_file(values, tuned)
    stctl("diff", whole, tuned, "--output", delta)
    stctl("shard", whole, folder, "--max-size", "20000")
    shards = sorted(folder.glob("*.safetensors"))
    assert len(shards) == 2
    environment = {**os.environ, "LD_PRELOAD": str(killer), "KILL_WRITE_TO": str(shards[0]), "KILL_AT": "1"}
    assert stctl.raw("patch", folder, delta, env=environment).returncode == -signal.SIGKILL
    for shard in shards:
        journal, fields = the_journal(stctl, shard)
        assert (journal["state"], journal["kind"]) == ("committed", "redo")
        assert fields["flags"]["meaning"] == "34: redo, a part of several, of ranges what changes"
        assert fields["payload 0"]["meaning"] == "what changes; hash right"
        assert fields["range 0: packed"]["meaning"] == f"{fields['payload 0']['size']} bytes"
        assert fields["sectors 0"]["meaning"].endswith("hash right")
        assert fields["new sectors 0"]["meaning"].endswith("hash right")
        assert journal["size"] < 5000 + (64 << 10)
    stctl("recover", folder)
    assert stctl.json("diff", folder, tuned, "-o", tmp_path / "nothing.safetensors")["changed"] == 0


def test_an_emptied_one_tells_what_it_said_last(stctl, crashed):
    (path,) = folder_of(crashed).iterdir()
    data = bytearray(path.read_bytes())
    data[:512] = bytes(512)
    path.write_bytes(data)
    journal, fields = the_journal(stctl, crashed)
    assert journal["state"] == "empty"
    assert fields["commit record"]["meaning"] == "zero: this journal promises nothing"
    assert fields["copy: inode"]["meaning"].startswith(f"{crashed.stat().st_ino}:")


def test_what_is_no_journal(stctl, crashed):
    path = folder_of(crashed) / "short"
    path.write_bytes(b"libst")
    states = {j["file"]: j["state"] for j in stctl.json("journal", crashed)["journals"]}
    assert states[str(path)] == "damaged"
    path.unlink()
    path.mkdir()
    (path.parent / "0").symlink_to("nowhere")
    journals = {j["file"]: j for j in stctl.json("journal", crashed, code=1)["journals"]}
    assert sorted(j["state"] for j in journals.values()) == ["committed", "unreadable", "unreadable"]
    assert journals[str(path)]["error"]["message"].endswith("is no plain file")
    assert "is no plain file" in stctl("journal", crashed, code=1)[0]


def forge(stctl, crashed, ranges, manifest, range_record):
    """The journal with another list of ranges, and a size without end; its record's hash is right."""
    _, fields = the_journal(stctl, crashed)
    (path,) = folder_of(crashed).iterdir()
    data = bytearray(path.read_bytes())
    struct.pack_into("<Q", data, fields["manifest"]["offset"], manifest)
    struct.pack_into("<Q", data, fields["ranges"]["offset"], ranges)
    data[manifest : manifest + 48 * len(range_record)] = b"".join(struct.pack("<6Q", *r) for r in range_record)
    at = fields["record hash"]["offset"]
    struct.pack_into("<Q", data, at, hash64(bytes(data[:at]), at))
    path.write_bytes(data)
    os.truncate(path, 2**40)


def test_a_forged_one_costs_little(stctl, crashed):
    size = crashed.stat().st_size
    forge(stctl, crashed, 2**40, 8192, [(size - 48, 48, 4096, 0, 4096, 0), (0, 2**63, 4096, 0, 4096, 0)])
    limits = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_AS, (2**29, 2**29))}
    result = stctl.raw("journal", "--json", crashed, **limits)
    assert result.returncode == 0
    (journal,) = json.loads(result.stdout)["journals"]
    fields = {field["name"]: field["meaning"] for field in journal["fields"]}
    assert fields["manifest hash"].endswith("not looked at")
    assert fields["damaged"].startswith("a range lies outside the file's data")


def test_none_is_left_after_recovery(stctl, crashed):
    stctl("recover", crashed)
    assert stctl.json("journal", crashed)["journals"] == []


def test_a_folder_behind_a_link_is_refused_as_by_all_commands(stctl, model, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    folder_of(model).symlink_to("elsewhere")
    for command, path in (("ls", model), ("journal", model), ("journal", tmp_path)):
        assert stctl.json(command, path, code=1)["error"]["status"] == "ST_E_JOURNAL"
