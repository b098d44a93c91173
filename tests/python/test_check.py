"""verify and recover."""

import contextlib
import time

import crash
import libst
import numpy as np
import pytest
from conftest import TENSORS, raw_file, refused
from locks import exclusive
from safetensors.numpy import load_file


def test_a_sound_file_has_no_findings(model):
    told = []
    assert libst.verify(model, told.append) == []
    assert told and {finding.level for finding in told} == {"info"}


BROKEN = {
    "HEADER_TOO_SMALL": b"\0\0\0",
    "HEADER_TOO_LARGE": (10**9).to_bytes(8, "little") + b"{}",
    "HEADER_TRUNCATED": (100).to_bytes(8, "little") + b"{}",
    "HEADER_UTF8": (2).to_bytes(8, "little") + b"\xff\xff",
    "HEADER_JSON": (2).to_bytes(8, "little") + b"{x",
    "METADATA": raw_file([], {"a": 1}),
    "DTYPE": raw_file([("a", "F99", [1], b"x")]),
    "SIZE_MISMATCH": raw_file([("a", "F32", [1], b"x")]),
    "SUBBYTE": raw_file([("a", "F4", [1], b"x")]),
    "TRUNCATED": raw_file([("a", "U8", [4], b"abcd")])[:-1],
    "TRAILING_DATA": raw_file([("a", "U8", [4], b"abcd")]) + b"x",
}


@pytest.mark.parametrize("status", BROKEN)
def test_what_is_wrong_is_found_and_refused(tmp_path, status):
    path = tmp_path / "bad.safetensors"
    path.write_bytes(BROKEN[status])
    findings = libst.verify(path)
    assert libst.verify(path, report=False) == findings
    assert [f.status for f in findings if f.level == "error"] == [libst.Status[status]]
    assert all(finding.message for finding in findings)
    for opened in (lambda: libst.open(path), lambda: libst.open_memory(BROKEN[status])):
        with pytest.raises(libst.FormatError) as caught:
            opened()
        assert caught.value.status == libst.Status[status]
        assert caught.value.status_name == f"ST_E_{status}"
        assert isinstance(caught.value, ValueError) and len(str(caught.value)) > 10


def test_what_cannot_be_checked_raises(tmp_path):
    with pytest.raises(FileNotFoundError):
        libst.verify(tmp_path / "nope")
    with refused("NOT_REGULAR"):
        libst.verify(tmp_path)
    with pytest.raises(ValueError, match="null byte"):
        libst.verify("a\0b")


def test_an_exception_in_report_comes_out(model, tmp_path):
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(BROKEN["TRUNCATED"])

    def report(finding):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        libst.verify(bad, report)


def test_nothing_to_recover(model):
    before = model.read_bytes()
    assert libst.recover(model) == []
    assert model.read_bytes() == before


NEW = TENSORS["b"] * 7


def test_an_uncommitted_journal_is_dropped(model):
    crash.while_staging(model, "b", NEW)
    assert libst.verify(model) == []  # it concerns nobody
    told = []
    findings = libst.recover(model, told.append)
    assert told == findings
    assert [(finding.level, finding.status) for finding in findings] == [("info", libst.Status.OK)]
    assert crash.journals(model) == []
    assert libst.recover(model) == []
    assert np.array_equal(load_file(model)["b"], TENSORS["b"])


def test_a_committed_journal_is_applied(model):
    crash.after_commit(model, "b", NEW)
    assert np.array_equal(load_file(model)["b"], TENSORS["b"])
    assert [finding.status for finding in libst.verify(model)] == [libst.Status.NEEDS_RECOVERY]
    assert len(crash.journals(model)) == 1  # reported, and not touched

    findings = libst.recover(model)
    assert [(finding.level, finding.status) for finding in findings] == [("info", libst.Status.OK)]
    assert "finished" in findings[0].message
    assert np.array_equal(load_file(model)["b"], NEW)
    assert libst.verify(model) == [] and libst.recover(model) == []


@pytest.mark.parametrize("mode", ["r", "r+"])
def test_opening_recovers_first(model, mode):
    crash.after_commit(model, "b", NEW)
    with libst.open(model, mode) as f:
        assert np.array_equal(f["b"], NEW)
        assert f.stats().recoveries == 1
    assert crash.journals(model) == []


def test_a_damaged_journal_is_not_applied(model):
    crash.after_commit(model, "b", NEW)
    (journal,) = crash.journals(model)
    content = bytearray(journal.read_bytes())
    content[content.index(NEW.tobytes())] ^= 1
    journal.write_bytes(content)

    told = []
    torn = content[80] == 16  # its parts share one flush: beside old bytes, it is taken for torn by a power cut
    with contextlib.nullcontext() if torn else refused("JOURNAL"):
        libst.recover(model, told.append)
    level, status = ("info", libst.Status.OK) if torn else ("warning", libst.Status.JOURNAL)
    assert [(finding.level, finding.status) for finding in told] == [(level, status)]
    assert np.array_equal(load_file(model)["b"], TENSORS["b"])
    assert [entry.suffix for entry in crash.journals(model)] == ([] if torn else [".bad"])
    with libst.open(model, "r+") as f:  # it is in nobody's way
        f.update("b", NEW)
    assert np.array_equal(load_file(model)["b"], NEW)


def test_a_damaged_journal_beside_a_mix_is_moved_aside(model):
    crash.after_commit(model, "b", NEW)
    (journal,) = crash.journals(model)
    content = bytearray(journal.read_bytes())
    content[content.index(NEW.tobytes())] ^= 1
    journal.write_bytes(content)
    mixed = bytearray(model.read_bytes())
    mixed[mixed.index(TENSORS["b"].tobytes())] ^= 1
    model.write_bytes(mixed)

    told = []
    with refused("JOURNAL"):
        libst.recover(model, told.append)
    assert [(finding.level, finding.status) for finding in told] == [("warning", libst.Status.JOURNAL)]
    assert model.read_bytes() == mixed
    assert [entry.suffix for entry in crash.journals(model)] == [".bad"]


def test_an_exception_in_recovers_report_comes_out(model):
    crash.after_commit(model, "b", NEW)

    def report(finding):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        libst.recover(model, report)
    libst.recover(model)
    assert libst.verify(model) == []
    assert np.array_equal(load_file(model)["b"], NEW)


def test_recovery_waits_for_a_lock_and_no_longer_than_asked(model):
    crash.after_commit(model, "b", NEW)
    with exclusive(model):
        for call in (libst.recover, libst.open):
            begin = time.monotonic()
            with pytest.raises(libst.BusyError):
                call(model, lock_timeout=0.5)
            assert 0.4 < time.monotonic() - begin < 60
    libst.recover(model, lock_timeout=0)
    assert np.array_equal(load_file(model)["b"], NEW)


def test_remarks_on_a_sound_file_go_to_report_only(raw):
    path = raw(
        [("x", "U8", [1], b"x"), ("w", "F32", [2], bytes(8)), ("y", "U8", [1], b"y"), ("v", "F32", [], bytes(4))]
    )
    told = []
    assert libst.verify(path, told.append) == []
    assert "warning" in [finding.level for finding in told]
    assert {finding.status for finding in told} == {libst.Status.OK}


def test_recovering_a_missing_file_raises(tmp_path):
    with refused("NO_FILE"):
        libst.recover(tmp_path / "nope")
