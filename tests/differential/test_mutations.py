"""Valid files damaged at random: stock and libst must say the same of each, and read the same where they accept.

The only licence: a name that stands twice, which libst refuses (see corpus.EXPLAINED). It is checked by
parsing the header anew, so that it cannot hide another difference. LIBST_TEST_SEED and LIBST_TEST_MUTATIONS
(default 20000 of each kind) make longer hunts.
"""

import json
import os
from random import Random

import generate
import pytest
import reference
from corpus import CASES

SEED = int(os.environ.get("LIBST_TEST_SEED", "20240901"))
MUTATIONS = int(os.environ.get("LIBST_TEST_MUTATIONS", "20000"))
KINDS = [generate.mutate_bytes, generate.mutate_tokens, generate.mutate_values]


def has_duplicate_name(content: bytes) -> bool:
    """Whether a tensor's name stands twice. Only asked of files that stock accepts, so the header parses."""
    pairs = json.loads(generate.split(content)[0], object_pairs_hook=lambda p: p)
    names = [k for k, _ in pairs]
    return len(names) != len(set(names))


def difference(libst, content: bytes) -> str | None:
    """What stock and libst see differently in a file; None if nothing."""
    expected = reference.read(content)
    try:
        with libst.File(memory=content) as f:
            found = {n: reference.Tensor(t.dtype, t.shape, t.data) for n, t in f.tensors().items()}
    except libst.Refused as refused:
        if expected is None:
            return None
        if refused.status == "ST_E_DUPLICATE_NAME" and has_duplicate_name(content):
            return None
        return f"stock accepts, libst refuses: {refused}"
    if expected is None:
        return "stock refuses, libst accepts"
    if has_duplicate_name(content):
        return "libst accepts a name that stands twice"
    return None if found == expected else "they read different tensors"


def bases() -> list[bytes]:
    """The files to damage: small valid ones of the corpus, and random ones."""
    from_corpus = [c.bytes() for c in CASES.values() if c.status == "ST_OK" and not c.name.startswith("header_1000")]
    at_random = [generate.build(r, *generate.model(r)) for r in map(Random, range(SEED, SEED + 100))]
    return [b for b in from_corpus if len(b) < 4096] + [b for b in at_random if len(b) < 8192]


@pytest.mark.parametrize("mutate", KINDS, ids=lambda f: f.__name__)
def test_same_verdict_on_damaged_files(libst, tmp_path, mutate):
    files, accepted = bases(), 0
    for i in range(MUTATIONS):
        r = Random(f"{SEED}/{mutate.__name__}/{i}")
        content = mutate(r, r.choice(files))
        found = difference(libst, content)
        if found:
            path = tmp_path / f"{mutate.__name__}-{SEED}-{i}.safetensors"
            path.write_bytes(content)
            pytest.fail(f"{found}\n  mutation {i} of seed {SEED}, saved as {path}\n  {content[:600]!r}")
        accepted += reference.read(content) is not None
    assert MUTATIONS // 100 <= accepted <= MUTATIONS * 3 // 4, (
        f"damage should kill many files and spare some: {accepted} of {MUTATIONS} lived"
    )
