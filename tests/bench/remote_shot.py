"""One read of a model by its URL, in a process of its own; prints a line of JSON: seconds, and those of the processor.

    remote_shot.py WAY URL SIZE     WAY: load or touched (libst, into fresh memory and into memory that was touched
                                    before), obstore-N (N ranges at once), curl-N (N to /dev/null), or runai

The environment says where the store is, and the keys. Before the clock starts imports are made, and as much memory as any
way takes is touched and given back. A virtual machine that gives free pages back to its host waits for each when it is used
again, and 1 GiB then costs up to seconds, by which pages a way happens to get.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

way, _, count = sys.argv[1].partition("-")
url, size = sys.argv[2], int(sys.argv[3])
part = -(-size // int(count or 1))
ranges = [(at, min(at + part, size)) for at in range(0, size, part)]
scheme, bucket, key = url.replace("://", "/").split("/", 2)
store = os.environ.get("AWS_ENDPOINT_URL" if scheme == "s3" else "STORAGE_EMULATOR_HOST")


def by_libst() -> int:
    return sum(array.nbytes for array in libst.load(url).values())


def into_touched_memory() -> int:
    with libst.open(url) as f:
        f.read_many(arrays)
    return sum(array.nbytes for array in arrays.values())


def by_obstore() -> int:
    of = obstore.store.S3Store(bucket, endpoint=store, client_options={"allow_http": True})
    with ThreadPoolExecutor(len(ranges)) as pool:
        found = list(pool.map(lambda r: obstore.get_range(of, key, start=r[0], end=r[1]), ranges))
    return sum(map(len, found))


def by_curl() -> int:
    """Signed by curl itself."""
    address, sign = f"{store}/storage/v1/b/{bucket}/o/{key}?alt=media", []
    if scheme == "s3":
        user = f"{os.environ['AWS_ACCESS_KEY_ID']}:{os.environ['AWS_SECRET_ACCESS_KEY']}"
        empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        address = f"{store}/{bucket}/{key}"
        sign = ["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", user, "-H", f"x-amz-content-sha256: {empty}"]
    told = ["curl", "-sfo", "/dev/null", "-w", "%{size_download}", *sign, address]
    curls = [subprocess.Popen([*told, "-r", f"{begin}-{end - 1}"], stdout=subprocess.PIPE) for begin, end in ranges]
    return sum(int(curl.communicate()[0]) for curl in curls)


def by_runai() -> int:
    """Each tensor is looked at, and not copied out of the streamer's buffer."""
    with SafetensorsStreamer() as streamer:
        streamer.stream_files([url])
        return sum(tensor.numel() * tensor.element_size() for _, tensor in streamer.get_tensors())


if way == "obstore":
    import obstore
elif way == "runai":
    from runai_model_streamer import SafetensorsStreamer
elif way != "curl":
    import libst
    import numpy as np

    if way == "touched":
        with libst.open(url) as described:
            parts = {name: described.slice(name) for name in described}
            dtypes = {"U8": np.uint8, "F32": np.float32}
            arrays = {name: np.ones(part.shape, dtypes[part.dtype]) for name, part in parts.items()}

READ = {"load": by_libst, "touched": into_touched_memory, "obstore": by_obstore, "curl": by_curl, "runai": by_runai}


def processor() -> float:
    own, children = (resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


with mmap.mmap(-1, 2 * size) as memory:
    memory.madvise(mmap.MADV_HUGEPAGE)
    for at in range(0, len(memory), 4096):
        memory[at] = 1

begun, worked = time.perf_counter(), processor()
read = READ[way]()
took, worked = time.perf_counter() - begun, processor() - worked
assert read <= size < read + (1 << 20), f"{way} read {read} bytes of {size}"
print(json.dumps({"seconds": took, "processor": worked}))
