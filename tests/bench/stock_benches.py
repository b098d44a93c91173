"""Stock's own benchmarks of torch, benches/test_pt.py of its source distribution, by stock and by libst in its place.

Each figure is what pytest-benchmark calls the median of a test in a process of its own. Rounds are in random order; a ratio is that
of a round. Stock does not sync what it saves, and libst does: so stock is faster by what the disk takes.

    stock_benches.py BUILD-TREE [--quick]     as table.py; --quick: 2 rounds for 9
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from loads import CACHE, PEERS, TORCH, environment, lower
from stock_source import NAME, fetch
from table import HERE, PLACE, QUICK, heading, note, paired, summary

ROUNDS = 2 if QUICK else 9
SHADOW = HERE.parents[1] / "bindings/python/libst/compat/_shadow"
TESTS = {
    "test_pt_sf_load_cpu": "load_file, GPT-2",
    "test_pt_sf_load_cpu_pread": "load_file, GPT-2, backend pread",
    "test_pt_sf_load_cpu_small": "load_file, 1,000 tensors of 4 KiB",
    "test_pt_sf_load_cpu_small_pread": "load_file, 1,000 tensors of 4 KiB, backend pread",
    "test_pt_sf_save_cpu": "save_file, GPT-2, without stock's syncs",
}


def shoot(way: str, test: str, benches: Path) -> float:
    """Seconds."""
    env = environment()
    if way == "libst":
        env["PYTHONPATH"] = f"{SHADOW}:{env['PYTHONPATH']}"
    with tempfile.NamedTemporaryFile() as found:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", f"--benchmark-json={found.name}"]
        said = subprocess.run([*command, f"{benches}/test_pt.py::{test}"], cwd=PLACE, env={**env, "TMPDIR": str(PLACE)}, capture_output=True, text=True)
        if said.returncode:
            raise SystemExit(said.stdout + said.stderr)
        return json.load(open(found.name))["benchmarks"][0]["stats"]["median"]


def main() -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    heading("Stock's own benchmarks of torch, by stock and by libst in its place")
    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        source = fetch(CACHE, Path(folder))
        if not source or not (TORCH / ".complete").exists() or not (PEERS / "pytest_benchmark").exists():
            note(f"Left out: they need the source distribution of {NAME}, pytest-benchmark, and Debian's torch (tests/python/install_torch.sh)")
            return
        for test, what in TESTS.items():
            found: dict[str, list[float]] = {"stock": [], "libst": []}
            for _ in range(ROUNDS):
                for way in random.sample(list(found), 2):
                    found[way].append(shoot(way, test, source / "benches"))
            bound = lower([a / b for a, b in zip(found["stock"], found["libst"])])
            paired(f"stock's benches: {what}", found["stock"], found["libst"], bound=bound, at_least=None if "save" in test else 0.95, peer="stock")
    summary()


if __name__ == "__main__":
    main()
