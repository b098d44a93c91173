"""A model behind a URL by every door: Python, the drop-in, stctl. It does as a file does, or one sentence refuses."""

import copy
import json
import os
import pickle

import libst
import numpy as np
import pytest
from conftest import check, fails, stctl
from libst import Status


@pytest.fixture
def model(nginx):
    return f"{nginx.http}/model.safetensors"


def test_a_handle_goes_to_another_process_by_its_url(nginx, model, arrays):
    delta = f"{nginx.http}/delta.safetensors"
    with libst.open(model) as f, libst.open(model, deltas=[delta]) as g:
        for file in (f, g):
            for again in (pickle.loads(pickle.dumps(file)), copy.copy(file)):
                with again:
                    np.testing.assert_array_equal(again.read("small"), file.read("small"))


@pytest.mark.parametrize("of", ["model", "shards", "overlay"])
def test_what_cannot_be_opened_again_says_so(nginx, model, of):
    deltas = [f"{nginx.http}/delta.safetensors"] if of == "overlay" else []
    with libst.open(f"{nginx.http}/shards/" if of == "shards" else model, deltas=deltas) as f:
        with fails(Status.UNSUPPORTED, match="cannot be opened again; use the same handle"):
            f.reopen()
        assert f.read("small").size == 10


def test_shards_are_cut_and_joined_into_files(base, arrays, folder, tmp_path):
    libst.reshard(f"{base}/model.safetensors", tmp_path / "cut", 1 << 20)
    check(libst.load(tmp_path / "cut"), arrays)
    libst.join(f"{base}/shards/", tmp_path / "joined.safetensors")
    check(libst.load(tmp_path / "joined.safetensors"), arrays)
    libst.join(f"{base}/model.safetensors", tmp_path / "copy.safetensors")
    assert (tmp_path / "copy.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_a_copy_that_fails_leaves_nothing(faults, tmp_path):
    faults.script = [None, None, "replaced"]
    with fails(Status.FILE_CHANGED):
        libst.join(faults.url, tmp_path / "copy.safetensors")
    assert not list(tmp_path.iterdir())


READS = [
    ["ls"],
    ["ls", "--json"],
    ["view"],
    ["info", "rows"],
    ["get", "small"],
    ["get", "rows", "--slice", "3:9,:4"],
    ["meta"],
    ["verify"],
    ["verify", "--json"],
]


@pytest.mark.parametrize("what", READS, ids=" ".join)
@pytest.mark.parametrize("name", ["model.safetensors", "shards/model.safetensors.index.json"])
def test_stctl_says_of_a_url_what_it_says_of_a_file(nginx, folder, what, name):
    told = stctl(what[0], f"{nginx.http}/{name}", *what[1:])
    meant = stctl(what[0], folder / name, *what[1:])
    assert (told.returncode, told.stderr) == (meant.returncode, meant.stderr) == (0, "")
    if what[0] != "verify":  # which looks for journals beside a file
        assert told.stdout.replace(f"{nginx.http}/", f"{folder}/") == meant.stdout
    elif "--json" in what:
        assert json.loads(told.stdout)


CHANGES = [
    ["put", "new", "--npy"],
    ["update", "small", "--npy"],
    ["rm", "small"],
    ["mv", "small", "large"],
    ["meta", "key=value"],
    ["compact"],
    ["recover"],
]


@pytest.mark.parametrize("what", CHANGES, ids=lambda what: what[0])
def test_no_command_changes_what_a_url_names(model, tmp_path, what):
    np.save(tmp_path / "a.npy", np.arange(10))
    arguments = what[1:] + ([tmp_path / "a.npy"] if "--npy" in what else [])
    told = stctl(what[0], model, *arguments, "--json")
    said = json.loads(told.stdout)
    error = said.get("error") or said["files"][0]["error"]
    assert told.returncode != 0
    assert error["status"] == "ST_E_UNSUPPORTED", error
    assert model in error["message"]
    assert "\n" not in error["message"]


def test_a_url_has_no_journals(nginx):
    told = stctl("journal", f"{nginx.http}/model.safetensors?sig=hidden")
    assert told.returncode == 1 and not told.stdout
    assert f"'{nginx.http}/model.safetensors' is a URL, and journals lie beside files" in told.stderr


def test_no_call_changes_what_a_url_names(model, arrays, tmp_path):
    with libst.open(model) as f, fails(Status.UNSUPPORTED, Status.READ_ONLY), f.transaction() as changes:
        changes.delete("small")
    for change in (
        lambda: libst.save(model, arrays),
        lambda: libst.compact(model),
        lambda: libst.recover(model),
        lambda: libst.join(model, model),
        lambda: libst.reshard(model, model.replace("model.safetensors", "new"), 1 << 20),
    ):
        with fails(Status.UNSUPPORTED, match=r"is a URL, .*; (give the path of|save a copy)"):
            change()


def test_a_url_that_names_no_bucket_is_no_folder_for_shards(folder, tmp_path, monkeypatch):
    """As "s3://$BUCKET" is, where nobody set the variable."""
    monkeypatch.chdir(tmp_path)
    for url in ("s3://", "https:///"):
        with fails(Status.UNSUPPORTED, match=f"'{url}' is a URL, .*; give the path of a folder"):
            libst.reshard(folder / "model.safetensors", url, 1 << 20)
    assert os.listdir(tmp_path) == []


def test_the_drop_in_reads_and_refuses(nginx, model, arrays, changed, monkeypatch):
    from libst.compat import SafetensorError, safe_open
    from libst.compat.numpy import load_file, save_file

    monkeypatch.setenv("HF_ENDPOINT", nginx.hub)
    for url in (model, "hf://owner/model/model.safetensors", f"{nginx.http}/shards/"):
        for backend in ("mmap", "pread"):
            check(load_file(url, backend=backend), arrays)
    with safe_open(model, "np") as f:
        assert f.keys() == sorted(arrays)
        assert f.get_tensor("small").flags.writeable
        assert f.get_slice("rows").get_shape() == [1000, 64]
    with pytest.raises(FileNotFoundError, match="nothing.safetensors"):
        load_file(f"{nginx.http}/nothing.safetensors")
    with pytest.raises(SafetensorError, match="is a URL"):
        save_file({"a": np.ones(3)}, f"{nginx.http}/new.safetensors")


def test_the_drop_in_gives_torch_its_tensors(model, arrays):
    torch = pytest.importorskip("torch")
    from libst.compat import safe_open
    from libst.compat.torch import load_file

    check({name: tensor.numpy() for name, tensor in load_file(model).items()}, arrays)
    with safe_open(model, "pt") as f:
        tensor = f.get_tensor("rows")
        tensor += 1  # it is the caller's
        assert torch.equal(f.get_slice("rows")[5:9], torch.from_numpy(arrays["rows"][5:9]))
