"""Deltas behind URLs, and on what URLs name: overlays, diff, patch, merge, verify."""

import os
import shutil
import stat

import libst
import numpy as np
import pytest
from conftest import Stopped, check, fails, stctl, stopper
from fault_server import FaultServer
from libst import Status


def copied(folder, tmp_path):
    return shutil.copy(folder / "model.safetensors", tmp_path / "copy.safetensors")


def test_an_overlay_of_a_url_or_by_one(base, folder, changed):
    with libst.open(f"{base}/model.safetensors", deltas=[f"{base}/delta.safetensors"]) as f:
        check({name: f[name] for name in f}, changed)
        np.testing.assert_array_equal(f.slice("rows")[10:600:7], changed["rows"][10:600:7])
        f.refresh()
        check(f.read_many(list(f)), changed)
    for below, delta in ((base, folder), (folder, base), (f"{base}/shards", base)):
        name = "model.safetensors.index.json" if below == f"{base}/shards" else "model.safetensors"
        with libst.open(f"{below}/{name}", deltas=[f"{delta}/delta.safetensors"]) as f:
            assert set(f) == set(changed)
            for name in ("small", "rows", "added"):
                np.testing.assert_array_equal(f.read(name), changed[name])


def test_the_difference_of_two_urls(base, folder, tmp_path):
    libst.diff(f"{base}/shards/", f"{base}/changed.safetensors", tmp_path / "delta")
    assert libst.delta_info(tmp_path / "delta") == libst.delta_info(f"{base}/delta.safetensors")


def test_what_is_made_of_urls_alone_has_the_mode_of_the_umask(nginx, folder, tmp_path):
    delta = shutil.copy(folder / "delta.safetensors", tmp_path / "delta")
    delta.chmod(0o600)
    umask = os.umask(0o027)
    try:
        libst.join(f"{nginx.http}/shards/", tmp_path / "joined")
        libst.merge(f"{nginx.http}/model.safetensors", [delta], tmp_path / "merged")
    finally:
        os.umask(umask)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("joined", "merged")] == [0o640, 0o600]


def two_blocks_and_a_delta(tmp_path, kind):
    """Of a tensor, before and after; and the bytes of the delta, which holds it whole, or steps."""
    n = 2_000_000
    random = np.random.default_rng(7)
    before = {"a": random.integers(0, 256, n, dtype=np.uint8).view("<u4")}
    after = {"a": before["a"] + 1}
    every = 1 if kind == "whole" else 4
    after["a"][::every] = random.integers(0, 1 << 32, n // 4 // every, dtype="<u4")
    libst.save(tmp_path / "base", before)
    libst.save(tmp_path / "after", after)
    libst.diff(tmp_path / "base", tmp_path / "after", tmp_path / "delta")
    return before, after, (tmp_path / "delta").read_bytes()


@pytest.mark.parametrize("kind", ["whole", "steps"])
@pytest.mark.parametrize("at", [2, 3])
def test_an_apply_that_waits_for_a_server_can_be_stopped(tmp_path, kind, at):
    """At each of its requests: of what is checked, of what is staged, and of what is remade under the locks."""
    before, after, delta = two_blocks_and_a_delta(tmp_path, kind)
    with FaultServer(delta, delta) as server:
        server.script = [None] * (at - 1) + ["stall"] * 8

        with stopper(lambda: len(server.requests) >= at), pytest.raises(Stopped):
            libst.patch(tmp_path / "base", server.url)
        assert len(server.requests) == at, "it was asked again"
        check(libst.load(tmp_path / "base"), before)
        server.begin_anew([])
        libst.patch(tmp_path / "base", server.url)
        check(libst.load(tmp_path / "base"), after)


def test_an_overlay_that_waits_for_a_server_can_be_stopped(tmp_path):
    """While it takes the steps of a delta behind a URL, on a file that lies here. They come in one read."""
    _, after, delta = two_blocks_and_a_delta(tmp_path, "steps")
    with FaultServer(delta, delta) as server:
        server.script = [None] + ["stall"] * 8
        with stopper(lambda: len(server.requests) >= 2), pytest.raises(Stopped):
            libst.open(tmp_path / "base", deltas=[server.url])
        server.begin_anew([])
        with libst.open(tmp_path / "base", deltas=[server.url]) as f:
            check({name: f[name] for name in f}, after)
        assert len(server.requests) == 2


def test_a_verification_that_waits_for_a_server_can_be_stopped(tmp_path):
    """At each of its requests: of each file by itself, and of what they make together."""
    _, _, delta = two_blocks_and_a_delta(tmp_path, "steps")
    with FaultServer(delta, delta) as server:
        libst.verify(tmp_path / "base", deltas=[server.url])
        requests = len(server.requests)
        assert requests > 3
        for at in range(1, requests + 1):
            server.begin_anew([None] * (at - 1) + ["stall"] * 8)
            with stopper(lambda at=at: len(server.requests) >= at), pytest.raises(Stopped):
                libst.verify(tmp_path / "base", deltas=[server.url])
            assert len(server.requests) == at, "it was asked again"


def test_a_file_is_patched_by_a_delta_of_a_url_and_back(base, folder, changed, arrays, tmp_path):
    copy = copied(folder, tmp_path)
    libst.patch(copy, f"{base}/delta.safetensors", reverse=tmp_path / "back")
    check(libst.load(copy), changed)
    libst.patch(copy, tmp_path / "back")
    check(libst.load(copy), arrays)


def test_what_urls_name_is_merged_into_a_file(base, folder, changed, tmp_path):
    for below in (f"{base}/model.safetensors", f"{base}/shards/", folder / "model.safetensors"):
        libst.merge(below, [f"{base}/delta.safetensors"], tmp_path / "merged")
        check(libst.load(tmp_path / "merged"), changed)


def test_stctl_compares_verifies_and_merges(base, folder, changed, tmp_path):
    model, delta = f"{base}/model.safetensors", f"{base}/delta.safetensors"
    for arguments in (("ls", model, "--delta", delta), ("get", model, "small", "--delta", delta)):
        local = [str(each).replace(base, str(folder)) for each in arguments]
        told, meant = stctl(*arguments), stctl(*local)
        assert (told.returncode, told.stdout) == (meant.returncode, meant.stdout), told.stderr
    assert stctl("diff", model, f"{base}/changed.safetensors", "-o", tmp_path / "delta").returncode == 0
    assert (tmp_path / "delta").read_bytes() == (folder / "delta.safetensors").read_bytes()
    assert stctl("verify", model, "--delta", delta).returncode == 0
    assert stctl("merge", model, delta, "-o", tmp_path / "merged").returncode == 0
    check(libst.load(tmp_path / "merged"), changed)


def test_an_overlay_shows_no_secret(nginx):
    model, delta = (f"{nginx.http}/{name}.safetensors?sig=hidden" for name in ("model", "delta"))
    with libst.open(model.replace("//", "//me:hidden@"), deltas=[delta]) as f:
        assert "hidden" not in repr(f)
        with fails(Status.READ_ONLY, match="'.*model.safetensors' is for reading only") as caught:
            f.transaction()
        assert "hidden" not in str(caught.value)


def test_a_delta_that_does_not_fit_names_the_urls(nginx, folder, tmp_path):
    model, delta, other = (f"{nginx.http}/{name}.safetensors" for name in ("model", "delta", "other"))
    with fails(Status.DELTA_BASE, match=f"'{other}'"):
        libst.open(other, deltas=[delta])
    with fails(Status.DELTA, match=f"'{model}'"):
        libst.open(model, deltas=[model])
    with fails(Status.NO_FILE, match=r"nothing\.safetensors.*404"):
        libst.open(model, deltas=[f"{nginx.http}/nothing.safetensors"])
    with fails(Status.DELTA_BASE, match="copy.safetensors"):
        libst.patch(shutil.copy(folder / "other.safetensors", tmp_path / "copy.safetensors"), delta)


def test_a_delta_that_is_replaced_is_never_mixed_in(nginx, folder):
    delta = folder / "replaced.safetensors"
    shutil.copy(folder / "delta.safetensors", delta)
    with libst.open(f"{nginx.http}/many.safetensors") as many:
        libst.save(folder / "more.safetensors", {**{n: many[n] for n in many}, "long": np.ones(400_000)})
    libst.diff(folder / "many.safetensors", folder / "more.safetensors", delta)
    with libst.open(f"{nginx.http}/many.safetensors", deltas=[f"{nginx.http}/replaced.safetensors"]) as f:
        delta.unlink()
        with fails(Status.FILE_CHANGED):
            f.read("long")


@pytest.mark.parametrize("where", ["base", "delta"])
def test_nothing_is_written_to_a_url(nginx, folder, tmp_path, where):
    url = f"{nginx.http}/model.safetensors"
    delta = f"{nginx.http}/delta.safetensors" if where == "delta" else folder / "delta.safetensors"
    told = "is a URL, (of which libst only reads models|and what that names can only be read)"
    with fails(Status.UNSUPPORTED, match=told):
        libst.patch(url, delta)
    with fails(Status.UNSUPPORTED, match=told):
        libst.diff(url, f"{nginx.http}/changed.safetensors", f"{nginx.http}/new.safetensors")
    with fails(Status.UNSUPPORTED, match=told):
        libst.merge(url, [delta], f"{nginx.http}/new.safetensors")
    with fails(Status.UNSUPPORTED, match=told):
        libst.patch(copied(folder, tmp_path), delta, reverse=f"{nginx.http}/new.safetensors")
    check(libst.load(tmp_path / "copy.safetensors"), libst.load(folder / "model.safetensors"))
