#!/usr/bin/env python3
"""1 GiB from versitygw on loopback, into memory: libst, obstore (pip install obstore), and four curls to /dev/null.

    PYTHONPATH=bindings/python LIBST_LIBRARY=build/capi/libst.so.2 python3 tests/bench/remote.py [MiB] [ROUNDS]

By turns, after one round that does not count; medians of wall-clock seconds, and of the client's seconds of processor.
All share the processors with the server. Memory that a process touches first may cost a virtual machine that gives free
pages back to its host more than the bytes that come into it: one row of libst has its memory from round to round.
"""

import importlib.util
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import libst
import numpy as np

ROOT = Path(__file__).resolve().parents[2]
ARRAYS = {}  # memory that every round has
KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench-secret", "AWS_REGION": "us-east-1"}


def by_libst(url, _size):
    libst.load(url)


def into_arrays(url, _size):
    with libst.open(url) as f:
        f.read_many({name: ARRAYS.setdefault(name, np.ones(f.slice(name).shape, dtype=np.uint8)) for name in f})


def by_obstore(url, size):
    import obstore

    key = url.split("/", 3)[3]
    store = obstore.store.S3Store(
        "bench",
        endpoint=os.environ["AWS_ENDPOINT_URL"],
        access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
        secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
        client_options={"allow_http": True},
    )
    part = size // 8 + 1
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(lambda at: obstore.get_range(store, key, start=at, end=min(at + part, size)), range(0, size, part))
        )


def by_curl(url, size):
    """Signed by curl itself."""
    part = size // 4 + 1
    target = os.environ["AWS_ENDPOINT_URL"] + "/" + url.split("/", 2)[2]
    user = f"{KEYS['AWS_ACCESS_KEY_ID']}:{KEYS['AWS_SECRET_ACCESS_KEY']}"
    sign = ["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", user]
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    curls = [
        subprocess.Popen(
            ["curl", "-sfo", "/dev/null", "-H", f"x-amz-content-sha256: {empty}", *sign]
            + ["-r", f"{at}-{min(at + part, size) - 1}", target]
        )
        for at in range(0, size, part)
    ]
    assert [curl.wait() for curl in curls] == [0] * len(curls)


def processor_seconds():
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def main(mebibytes=1024, rounds=5):
    os.environ.update(KEYS)
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as place:
        for name in ("root/bench", "side"):
            os.makedirs(f"{place}/{name}")
        file = f"{place}/root/bench/model.safetensors"
        random = np.random.default_rng(1)
        libst.save(file, {f"t{i}": random.integers(0, 256, mebibytes << 17, dtype=np.uint8) for i in range(8)})
        size = os.path.getsize(file)
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        os.environ["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{port}"
        gateway = subprocess.Popen(
            [ROOT / "build/cache/rig/bin/versitygw", "--port", f"127.0.0.1:{port}", "--quiet", "--keep-alive"]
            + ["--access", KEYS["AWS_ACCESS_KEY_ID"], "--secret", KEYS["AWS_SECRET_ACCESS_KEY"]]
            + ["posix", "--sidecar", f"{place}/side", f"{place}/root"],
            stdout=subprocess.DEVNULL,
        )
        try:
            while socket.socket().connect_ex(("127.0.0.1", port)):
                time.sleep(0.05)
            ways = {
                "libst": by_libst,
                "libst, into arrays": into_arrays,
                "obstore, 8 ranges": by_obstore,
                "curl, 4 to /dev/null": by_curl,
            }
            if not importlib.util.find_spec("obstore"):
                del ways["obstore, 8 ranges"]
            took = {name: [] for name in ways}
            for _ in range(rounds + 1):
                for name, read in ways.items():
                    begun, worked = time.monotonic(), processor_seconds()
                    read("s3://bench/model.safetensors", size)
                    took[name].append((time.monotonic() - begun, processor_seconds() - worked))
            for name, rows in took.items():
                times, work = zip(*rows[1:])
                print(
                    f"{name:22} {statistics.median(times):.2f} s  ({min(times):.2f} to {max(times):.2f}), "
                    f"{statistics.median(work):.2f} of a processor ({min(work):.2f} to {max(work):.2f})"
                )
        finally:
            gateway.terminate()
            gateway.wait()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
