"""Every file of the corpus through stock safetensors and through libst: the same verdict, the same content."""

import pytest
import reference
from corpus import CASES, EXPLAINED

ALL = [pytest.param(case, id=case.name) for case in CASES.values()]
VALID = [pytest.param(case, id=case.name) for case in CASES.values() if case.status == "ST_OK"]


@pytest.fixture
def path(tmp_path):
    """A place for one file, emptied at once: two cases are 100 MB."""
    p = tmp_path / "case.safetensors"
    yield p
    p.unlink(missing_ok=True)


def test_the_corpus_covers_every_format_status():
    from_header = {
        "HEADER_TOO_SMALL", "HEADER_TOO_LARGE", "HEADER_TRUNCATED", "HEADER_UTF8", "HEADER_JSON", "METADATA",
        "TENSOR_INFO", "DTYPE", "SHAPE_OVERFLOW", "OFFSETS", "OVERLAP", "HOLE", "SIZE_MISMATCH", "SUBBYTE", "TRUNCATED",
        "TRAILING_DATA", "DUPLICATE_NAME",
    }  # fmt: skip
    assert {c.status for c in CASES.values()} == {"ST_OK"} | {f"ST_E_{s}" for s in from_header}


def test_only_duplicate_names_are_explained_away():
    assert all(CASES[name].status == "ST_E_DUPLICATE_NAME" for name in EXPLAINED)


@pytest.mark.parametrize("case", ALL)
def test_the_reference_accepts_or_refuses(case, path):
    content = case.bytes()
    path.write_bytes(content)
    expected = case.status == "ST_OK" or case.name in EXPLAINED
    assert (reference.read(content) is not None) == expected
    assert reference.accepts_file(path) == expected
    assert reference.accepts_file(path, backend="pread") == expected


@pytest.mark.parametrize("case", ALL)
def test_libst_answers_the_named_status(libst, case, path):
    content = case.bytes()
    path.write_bytes(content)

    def status(**how) -> str:
        try:
            libst.File(**how).close()
            return "ST_OK"
        except libst.Refused as refused:
            assert str(refused).removeprefix(f"{refused.status}: "), "a refusal has a sentence"
            return refused.status

    answers = {
        "st_open": status(path=path),
        "st_open, no mapping": status(path=path, map=libst.MAP_NONE),
        "st_open_memory": status(memory=content),
        "st_verify": libst.verify(path),
    }
    assert answers == dict.fromkeys(answers, case.status), case.why


@pytest.mark.parametrize("case", VALID)
def test_libst_reads_what_the_reference_reads(libst, case, path):
    content = case.bytes()
    path.write_bytes(content)
    expected = reference.read(content)
    for how in ({"path": path}, {"path": path, "map": libst.MAP_NONE}, {"memory": content}):
        with libst.File(**how) as f:
            found = f.tensors()
            assert {n: reference.Tensor(t.dtype, t.shape, t.data) for n, t in found.items()} == expected
            for t in found.values():
                assert content[t.file_offset : t.file_offset + len(t.data)] == t.data
            assert f.metadata() == reference.metadata(path)
