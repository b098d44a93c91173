"""Models behind URLs: what libst takes to read them, beside others that read object stores, and what it asks for.

Servers are real and on loopback, so they share the processors with what reads. What is timed is a shot: a process of its
own that reads the object once (remote_shot.py). Shots stand in rounds, in random order.

    remote.py BUILD-TREE [--quick]     as table.py; --quick: 64 MiB for 1 GiB, 2 rounds
    REMOTE_ROUNDS, REMOTE_ONLY         how many rounds; only these sections: gateway, distance, shards, slice, source, local
"""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import disk
import libst
import numpy as np
import s3_upload
from clients import lacking, program, start, stop
from distance import LATENCY, STOCK, Bench
from distance import SIZE as FAR
from distance import model as far_model
from loads import environment, lower
from object_store import Gcsfuse, ObjectStore, free_port
from table import BUILD, HERE, MIB, PLACE, QUICK, heading, note, paired, row, seconds, summary, timed
from table import program as bench

PEERS = HERE.parents[1] / "build/cache/peers-remote"
SIZE = (64 if QUICK else 1024) * MIB
ROUNDS = int(os.environ.get("REMOTE_ROUNDS", 2 if QUICK else 9))
KEYS = {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench-secret", "AWS_REGION": "us-east-1"}


def count(n: float) -> str:
    return f"{n:g}"


def kibibytes(n: float) -> str:
    return f"{n / 1024:.1f} KiB"


def listens(port: int) -> None:
    def connects() -> bool:
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0

    disk.wait_until(connects, f"a server on port {port}")


# ------------------------------------------------------------------ shots

def shots(ways: list[str], url: str, size: int, rounds: int, **variables: str) -> dict[str, list[dict]]:
    """By way, a figure of each round. A peer that cannot do it here is left out, and says why."""
    given = {**environment(), **variables}
    given["PYTHONPATH"] = f"{PEERS}:{given['PYTHONPATH']}"
    found: dict[str, list[dict]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in random.sample(list(found), len(found)):
            said = subprocess.run([sys.executable, HERE / "remote_shot.py", way, url, str(size)], env=given, capture_output=True, text=True, timeout=300)
            if said.returncode == 0:
                found[way].append(json.loads(said.stdout.splitlines()[-1]))
            elif way in ("load", "touched"):
                raise SystemExit(said.stdout + said.stderr)
            else:
                del found[way]
                note(f"{way} is left out: {(said.stderr.strip().splitlines() or ['it says nothing'])[-1]}")
    return found


class Shots:
    """A line for each pair of ways: by rounds."""

    def __init__(self, *arguments, **variables: str) -> None:
        self.found = shots(*arguments, **variables)

    def best(self, prefix: str) -> str:
        return min((way for way in self.found if way.startswith(prefix)), key=lambda way: median(self.of(way)), default="")

    def of(self, way: str, what: str = "seconds") -> list[float]:
        return [shot[what] for shot in self.found[way]]

    def line(self, text: str, peer: str, way: str, at_least: float | None = None) -> None:
        if peer not in self.found:
            return
        others, ours = self.of(peer), self.of(way)
        if at_least is None:
            row(text, median(others), median(ours), seconds, peer=peer)
        else:
            paired(text, others, ours, bound=lower([a / b for a, b in zip(others, ours)]), at_least=at_least, peer=peer)


# ------------------------------------------------------------------ 1 GiB, no latency

@contextmanager
def gateway(place: Path) -> Iterator[str]:
    """The endpoint of a store that speaks S3."""
    port = free_port()
    for folder in ("root", "side"):
        (place / folder).mkdir()
    command = [program("versitygw"), "--port", f"127.0.0.1:{port}", "--quiet", "--keep-alive", "--access", KEYS["AWS_ACCESS_KEY_ID"]]
    command += ["--secret", KEYS["AWS_SECRET_ACCESS_KEY"], "posix", "--sidecar", place / "side", place / "root"]
    process = start(command, place / "log")
    try:
        listens(port)
        yield f"http://127.0.0.1:{port}"
    finally:
        stop(process)


def from_gateway(place: Path) -> None:
    values = np.random.default_rng(1)
    file = place / "model.safetensors"
    libst.save(file, {f"t{i}": values.integers(0, 256, SIZE // 8, dtype=np.uint8) for i in range(8)})
    with gateway(place) as endpoint:
        # By a request, as what lies in the folder has no ETag, which runai wants.
        s3_upload.put(endpoint, "bench", "model.safetensors", file.read_bytes(), (KEYS["AWS_ACCESS_KEY_ID"], KEYS["AWS_SECRET_ACCESS_KEY"]))
        ways = ["load", "touched", "curl-4", "runai", *(f"obstore-{n}" for n in (4, 8, 16))]
        s3 = {"AWS_ENDPOINT_URL": endpoint, "AWS_EC2_METADATA_DISABLED": "true", "RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING": "0"}
        found = Shots(ways, "s3://bench/model.safetensors", file.stat().st_size, ROUNDS, **KEYS, **s3)
    obstore = found.best("obstore")
    found.line(f"{SIZE // MIB} MiB from versitygw: libst.load, against the fastest of obstore", obstore, "load", 1.1)
    found.line("  against runai-model-streamer", "runai", "load", 1.5)
    found.line("  against 4 curls to /dev/null", "curl-4", "load")
    found.line("  into touched memory, against 4 curls to /dev/null", "curl-4", "touched", 0.85)
    found.line("  into touched memory, against the fastest of obstore", obstore, "touched", 1.1)
    worked = {way: median(found.of(way, "processor")) for way in found.found}
    row("  processor, into touched memory, against 4 curls", worked["curl-4"], worked["touched"], seconds, at_most=1.3, peer="curl-4")
    row("  processor, libst.load, against 4 curls", worked["curl-4"], worked["load"], seconds, multiple=True, peer="curl-4")
    if obstore:
        row("  processor, libst.load, against the fastest of obstore", worked[obstore], worked["load"], seconds, multiple=True, peer=obstore)


# ------------------------------------------------------------------ 512 MiB, far away

def from_afar(place: Path, store: ObjectStore) -> None:
    if why_not := disk.why_not() or lacking("gcsfuse"):
        note(f"gcsfuse is left out: {why_not}")
        return
    disk.enter_own_namespace()
    store.put("model", far_model(FAR))
    rounds = 1 if QUICK else 3
    note("The link has no window: toxiproxy delays, and holds back nothing. So connections x window / RTT is no bound here, and curls take its place.")
    with Gcsfuse(store, place / "mnt", latency=LATENCY) as mount:
        mounted = Bench(mount)
        for n in (1, 2, 4):
            for _ in range(rounds):
                mounted.workers("contiguous", n)
        for how in ("pread", "load_file"):
            mounted.python(how, STOCK, how)
    far = {"STORAGE_EMULATOR_HOST": f"http://{store.delayed(LATENCY)}"}
    found = Shots(["load", "touched", "curl-16"], "gs://models/model", FAR, rounds, **far)
    ours = median(found.of("load"))
    through = min(mounted["contiguous", n] for n in (1, 2, 4))
    stock = min(mounted["pread",], mounted["load_file",])
    row(f"{FAR // MIB} MiB at {LATENCY} ms: libst.load, against libst through gcsfuse", through, ours, seconds, at_least=1.5, peer="libst")
    row("  against stock through gcsfuse", stock, ours, seconds, at_least=15)
    found.line("  against 16 curls to /dev/null", "curl-16", "load")
    found.line("  into touched memory, against 16 curls to /dev/null", "curl-16", "touched")


# ------------------------------------------------------------------ what is asked for

class WebServer:
    """nginx with a folder; `asked` has of each request when it began and ended, and how many bytes went out."""

    def __init__(self, place: Path, folder: Path) -> None:
        self.port, self._log = free_port(), place / "access"
        paths = "".join(f"{name}_temp_path {place}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (place / "conf").write_text(
            f"daemon off; worker_processes 1; pid {place}/pid; error_log {place}/error; user root; events {{}} http {{ sendfile on; {paths}"
            f"log_format told '$msec $request_time $bytes_sent'; access_log {self._log} told; server {{ listen 127.0.0.1:{self.port}; root {folder}; }} }}"
        )
        self._process = start([program("nginx"), "-c", place / "conf", "-e", place / "error", "-p", place], place / "said")
        listens(self.port)

    def asked(self, at_least: int) -> list[tuple[float, float, int]]:
        """nginx writes a line when the answer has gone out."""
        lines = disk.wait_until(lambda: len(lines := self._log.read_text().splitlines()) >= at_least and lines, f"{at_least} requests")
        told = [line.split() for line in lines]
        return [(float(end) - float(took), float(end), int(sent)) for end, took, sent in told]

    def forget(self) -> None:
        os.truncate(self._log, 0)

    def close(self) -> None:
        stop(self._process)


def in_a_row(asked: list[tuple[float, float, int]], latency: float) -> int:
    """The most requests of which each may have waited for the answer of the one before."""
    chain, free = 0, 0.0
    for end, begin in sorted((end, begin) for begin, end, _ in asked):
        if begin >= free:
            chain, free = chain + 1, end + latency
    return chain


def shards(place: Path, server: WebServer, store: ObjectStore) -> None:
    number, each = (10, 1000) if QUICK else (100, 1000)
    places: dict[str, str] = {}
    for i in range(number):
        tensors = {f"layers.{i}.weight.{j}": np.full(1, i, np.int32) for j in range(each)}
        name = f"model-{i + 1:05}-of-{number:05}.safetensors"
        libst.save(place / "served" / name, tensors)
        places |= dict.fromkeys(tensors, name)
    (place / "served/model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    url = f"http://{store.delayed(LATENCY, f'127.0.0.1:{server.port}')}/model.safetensors.index.json"
    server.forget()
    begun = time.perf_counter()
    with libst.open(url) as f:
        opened = len(server.asked(2))
        f.read("layers.0.weight.7")
        took = time.perf_counter() - begun
        first = server.asked(3)
        touched = [f.read(f"layers.{i}.weight.{each - 1}")[0] for i in range(1, number, 3)]
        more = len(server.asked(3 + len(touched))) - len(first)
    row(f"open {number} shards, {number * each:,} tensors, at {LATENCY} ms: requests", 2, opened, count, at_most=1, peer="target")
    row("  requests for each shard that is touched", 1, more / len(touched), count, at_most=1, peer="target")
    row("  round trips to the first tensor, by requests that waited", 3, in_a_row(first, LATENCY / 1000), count, at_most=1, peer="target")
    row("  time to the first tensor, against three waits", 3 * LATENCY / 1000, took, seconds, multiple=True, peer="waits")


def slice_of_much(place: Path, server: WebServer) -> None:
    n = 100_000_000_000
    header = json.dumps({"w": {"dtype": "U8", "shape": [n], "data_offsets": [0, n]}}).encode()
    with open(place / "served/sparse.safetensors", "wb") as out:
        out.write(len(header).to_bytes(8, "little") + header)
        out.truncate(8 + len(header) + n)
    server.forget()
    with libst.open(f"http://127.0.0.1:{server.port}/sparse.safetensors") as f:
        assert not f.slice("w")[n // 2 : n // 2 + 4096].any()
    asked = server.asked(2)
    row("4 KiB of a sparse 100 GB object: requests", 2, len(asked), count, at_most=1, peer="target")
    row("  bytes on the wire", 300 << 10, sum(sent for *_, sent in asked), kibibytes, at_most=1, peer="target")


# ------------------------------------------------------------------ sources and local files

def sources(place: Path) -> None:
    number = 16 if QUICK else 64
    path = place / "local.safetensors"
    libst.save(path, {f"t{i}": np.full(8 * MIB, i, np.uint8) for i in range(number)})
    found = bench(BUILD / "tests/bench/read_bench", "source", path, 2 * ROUNDS + 1)
    both = [median(found[what][1:]) for what in ("file", "source")]
    row(f"st_read of {number} x 8 MiB: a source that preads, against the file", *both, seconds, at_most=1.02, peer="file")
    to = np.ones(8 * MIB, np.uint8)

    def read_all(opened: libst.File) -> None:
        for i in range(number):
            opened.read(f"t{i}", to)

    with libst.open(path) as f, open(path, "rb", buffering=0) as raw, libst.open_source(raw) as of_python:
        times = [[timed(lambda opened=opened: read_all(opened)) for opened in (f, of_python)] for _ in range(2 * ROUNDS + 1)]
    row("  a Python file object, against the file in Python", *(median(t[i] for t in times[1:]) for i in (0, 1)), seconds, at_most=1.02, peer="file")


def local(place: Path) -> None:
    path = place / "whole.safetensors"
    libst.save(path, {f"t{i}": np.full(SIZE // 8, i, np.uint8) for i in range(8)})
    found = bench(BUILD / "tests/bench/read_bench", "raw", path, ROUNDS)
    note("Before and after the interface cannot be compared in one tree: st_read_many of a local file beside two threads that pread takes its place, as in `local`.")
    row(f"{SIZE // MIB} MiB of a local file: st_read_many, against pread, touched memory", median(found["touched"]), median(found["many"]), seconds, at_least=0.9, peer="pread")


def main() -> None:
    if why_not := lacking("versitygw", "fake-gcs-server", "toxiproxy", "nginx", "curl"):
        raise SystemExit(why_not)
    only = os.environ.get("REMOTE_ONLY", "gateway distance shards slice source local").split()
    PLACE.mkdir(parents=True, exist_ok=True)
    heading(f"Models behind URLs, servers on loopback; a fresh process a shot, {ROUNDS} rounds; peers in fresh memory, as libst.load is")
    try:
        with tempfile.TemporaryDirectory(dir=PLACE) as folder:
            place = Path(folder)
            if "gateway" in only:
                from_gateway(place)
            if "source" in only:
                sources(place)
            if "local" in only:
                local(place)
        with tempfile.TemporaryDirectory(dir=PLACE) as folder, ObjectStore(folder) as store:
            place = Path(folder)
            (place / "served").mkdir()
            place.chmod(0o755)
            server = WebServer(place, place / "served")
            try:
                if "shards" in only:
                    shards(place, server, store)
                if "slice" in only:
                    slice_of_much(place, server)
            finally:
                server.close()
            if "distance" in only:
                from_afar(place, store)
    finally:
        shutil.rmtree(PLACE)
    summary()


if __name__ == "__main__":
    main()
