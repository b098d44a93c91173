"""Faults before real stores: whatever comes, the bytes are right, or it is an error that says why."""

import json
import os
import subprocess
import sys
from pathlib import Path

import libst
import numpy as np
import pytest
from conftest import STCTL, ends_with_us
from fault_server import crc32c

HERE = Path(__file__).resolve().parent
LANES = 2  # processes a store: in each most time is waiting
FULL = os.environ.get("ST_TEST_BOUND") == "full"


@pytest.fixture(scope="module")
def versions(folder):
    """Two versions of a model and of its shards, each longer than a first answer. In the folder that nginx serves."""
    place = folder / "faults"
    random = np.random.default_rng(22)
    for version in ("first", "second"):
        arrays = {
            "first": random.integers(0, 256, 20_000, dtype=np.uint8),
            "rows": random.random((400, 200), dtype=np.float32),
            "last": random.integers(0, 256, 290_001, dtype=np.uint8),
        }
        (place / version).mkdir(parents=True)
        whole = place / "model.safetensors"
        libst.save(whole, arrays)
        subprocess.run([STCTL, "shard", whole, place / version, "--max-size", "330KB"], check=True)
        whole.rename(place / version / whole.name)
    checksums = {f"{file.parent.name}/{file.name}": f"crc32c={crc32c(file.read_bytes())}" for file in place.glob("*/*")}
    (place / "checksums.json").write_text(json.dumps(checksums))
    return place


@pytest.fixture(scope="module")
def trials(versions, nginx, gateway, google_store, azurite):
    """All stores at once."""
    blobs = azurite.split("BlobEndpoint=")[1].rsplit("/", 1)[0]
    stores = {"hub": nginx.http, "s3": gateway, "gs": google_store, "az": blobs}
    running = {}
    for kind, endpoint in stores.items():
        for lane in range(LANES):
            store = {"kind": kind, "endpoint": endpoint, "folder": str(versions), "prefix": f"faults{lane}"}
            settings = {"store": store, "share": [lane, LANES], "random": 5000 if FULL else 0}
            running[kind, lane] = subprocess.Popen(
                [sys.executable, HERE / "fault_trials.py", json.dumps(settings)],
                stdout=subprocess.PIPE,
                text=True,
                preexec_fn=ends_with_us,
            )
    yield running
    for process in running.values():
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("kind", ["hub", "s3", "gs", "az"])
def test_no_fault_of_a_real_store_brings_a_wrong_byte(trials, kind, record_property):
    """1,500 of all stores; 40,000 more with ST_TEST_BOUND=full."""
    came = 0
    for lane in range(LANES):
        process = trials[kind, lane]
        said, _ = process.communicate()
        assert process.returncode == 0
        told = json.loads(said)
        assert not told["wrong"], "\n".join(told["wrong"])
        came += sum(told["came"].values())
    print(f"{kind}: {came} faults")
    record_property("faults", came)
    assert came >= 370
