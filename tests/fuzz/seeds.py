"""Where fuzzing begins: the headers of the differential corpus, indices of shards, lists of old ones, answers of
servers, and for the programs that read their input as a sequence of choices a handful of arbitrary sequences, long
enough to get somewhere.

    seeds.py FOLDER      makes FOLDER/TARGET for each target
"""

import json
import sys
from pathlib import Path
from random import Random

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "differential"))

from corpus import CASES  # noqa: E402

CHOICES = {"journal": 60, "operations": 60, "shard_index": 60, "shards": 60, "slices": 20, "steps": 20}

# The shards that the program has. A text is told from choices by its last byte, the first choice.
PLACES = {
    "a": "m-1.safetensors",
    "b": "m-1.safetensors",
    "c": "m-2.safetensors",
    "d": "m-3.safetensors",
    "e": "m-3.safetensors",
}
INDICES = [
    {"metadata": {"total_size": 2160, "origin": "here"}, "weight_map": PLACES},
    {"metadata": {"total_size": "2160"}, "weight_map": PLACES | {"f": "m-3.safetensors"}},
    {"metadata": None, "weight_map": {"c": "m-2.safetensors"}, "format": ["pt", {"version": 1.5}]},
    {"metadata": {"total_size": 2160.0, "n": 10**30}, "weight_map": PLACES, "beyond": [1e300, -(2**64)]},
    {"metadata": {}, "weight_map": {}},
    {"weight_map": PLACES | {"d": "m-1.safetensors"}},
    {"weight_map": PLACES | {"a": "missing.safetensors"}},
    {"weight_map": {"a": "../outside.safetensors"}},
    {"weight_map": {"a": "m.safetensors.index.json"}},
    {"weight_map": {"w\u00e9ights\n": "m-1.safetensors", "": "m-2.safetensors"}},
]
# Lists of old shards: @ is what a file is that the index does not name, and the hash is put right by the program.
OLD_LISTS = [
    "",
    "0 @ another.safetensors\n",
    "99999999999 @ another.safetensors\n",
    "0 @ another.safetensors\n0 7 8 9 gone.safetensors\n",
    "0 @ m-1.safetensors\n",
    "0 7 8 9 another.safetensors\n",
    "0 @ another.safetensors\n0 @ another.safetensors\n",
    "0 @ ../outside.safetensors\n",
    "0 @ m.safetensors.index.json\n",
    "18446744073709551616 @ another.safetensors\n",
    "0 @ m-1.g4294967295.safetensors\n",
    "0 @ m-1.g18446744073709551615.safetensors\n",
]
# Answers of servers: code, how the connection ended (0: well), lines of the head, body.
GOOD = ['ETag: "an-etag"', "Content-Length: 50", "Content-Range: bytes 100-149/1000"]
FIRST = [
    'ETag: "an-etag"',
    "Content-Range: bytes 0-63/1000",
    "x-goog-hash: crc32c=n03x6A==,md5=Ojk9c3dhfxgoKVVHYwFbHQ==",
]
REFUSED = "<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>no &amp; never</Message></Error>"
ANSWERS = [
    (206, 0, GOOD, ""),
    (206, 2, GOOD, ""),
    (206, 0, FIRST, ""),
    (206, 0, [*GOOD, "Content-Encoding: gzip"], ""),
    (206, 0, [GOOD[0], "Content-Range: bytes 100-149/*"], ""),
    (200, 0, ["Content-Length: 40", "Last-Modified: Fri, 24 May 2013 00:00:00 GMT"], ""),
    (200, 0, ["x-amz-checksum-crc64nvme: rosUhgp5mIg=", "x-amz-checksum-type: FULL_OBJECT", "Content-Length: 9"], ""),
    (416, 0, ["Content-Range: bytes */0"], ""),
    (403, 0, ["x-amz-request-id: R17"], REFUSED),
    (400, 0, [], REFUSED.replace("AccessDenied", "ExpiredToken")),
    (503, 0, ["Retry-After: 7"], REFUSED.replace("AccessDenied", "SlowDown")),
    (503, 0, ["Retry-After: Fri, 24 May 2013 00:00:00 GMT"], "<html>"),
    (301, 0, ["x-amz-bucket-region: eu-west-1"], REFUSED.replace("AccessDenied", "PermanentRedirect")),
    (302, 0, ["Location: https://cdn.example/file?signature=1"], ""),
    (302, 0, ["Location: /owner/model/other"], ""),
    (302, 0, ["Location: //huggingface.co:444/file"], ""),
    (302, 0, ["Location: https://user:word@huggingface.co/file"], ""),
    (307, 0, ["Location: http://huggingface.co/file"], ""),
    (308, 0, ["Location: ftp://huggingface.co/file"], ""),
    (0, 1, [], ""),
    (0, 3, ["HTTP/1.1 100 Continue", "", "HTTP/1.1 206 Partial Content", *GOOD], ""),
]


def answer_bytes(code: int, cut: int, lines: list, body: str) -> bytes:
    """As the program takes it apart: a backslash ends the body, numbers are at the end."""
    return body.encode() + b"\\ " + "\n".join(lines).encode() + bytes([cut, code & 255, code >> 8])


def header_of(content: bytes) -> bytes:
    return content[8 : 8 + int.from_bytes(content[:8], "little")]


def main(folder: Path) -> None:
    headers = folder / "header"
    headers.mkdir(parents=True)
    for case in CASES.values():
        header = header_of(case.bytes())
        if 0 < len(header) <= 2048:
            (headers / case.name).write_bytes(header)
    (folder / "answers").mkdir()
    for i, answer in enumerate(ANSWERS):
        (folder / "answers" / f"answer-{i}").write_bytes(answer_bytes(*answer))
    for target, count in CHOICES.items():
        (folder / target).mkdir()
        if target == "shard_index":
            for i, index in enumerate(INDICES):
                for indent in (None, 2):
                    text = json.dumps(index, indent=indent, ensure_ascii=bool(indent)).encode()
                    (folder / target / f"index-{i}-{indent}").write_bytes(text + b"\x01")
            for i, entries in enumerate(OLD_LISTS):
                text = f"st-old 1\n{entries}end {0:016x}\n".encode()
                (folder / target / f"old-list-{i}").write_bytes(text + b"\x01")
        for i in range(count):
            r = Random(f"{target}/{i}")
            (folder / target / f"choices-{i}").write_bytes(r.randbytes(r.choice([40, 100, 200, 400])))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
