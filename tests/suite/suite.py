"""Run programs.py, each program by stock and by libst, and stock's own tests by libst; print a table."""

import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from libst.compat._install import SHADOW
from programs import PROGRAMS
from stock_source import fetch

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / "build" / "cache"
PACKAGES = ("torch", "transformers", "diffusers", "accelerate", "peft", "safetensors")
#: Those of stock's tests whose packages are here.
TESTS = ("simple", "handle", "threadable", "multithreaded", "pread_backend", "pt_comparison", "pt_model")


def answer(how, program):
    """What it says; what went wrong; the time that it took."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        said = subprocess.run(
            [sys.executable, *how, HERE / "programs.py", program, folder], capture_output=True, text=True
        )
        took = time.monotonic() - began
    lines = [line for line in said.stdout.splitlines() if line.startswith("ANSWER ")]
    if not lines:
        return None, (said.stderr.strip().splitlines() or ["no answer"])[-1], took
    return json.loads(lines[0].removeprefix("ANSWER ")), "", took


def compare(program):
    """The line of the table, and whether libst passes."""
    stock, wrong, stock_took = answer([], program)
    ours, error, took = answer(["-m", "libst.compat"], program)
    times = f"{stock_took:.1f} | {took:.1f}"
    if stock is None:
        return f"| {program} | stock itself fails: {wrong} | {times} |", ours is None
    if ours is None:
        return f"| {program} | FAILS: {error} | {times} |", False
    assert ours["by"].startswith("libst.") and not stock["by"].startswith("libst.")
    if ours["is"] != stock["is"]:
        return f"| {program} | OTHER RESULTS | {times} |", False
    different = [
        name for name in {**stock["files"], **ours["files"]} if stock["files"].get(name) != ours["files"].get(name)
    ]
    if different:
        return f"| {program} | OTHER FILES: {', '.join(different)} | {times} |", False
    return f"| {program} | same results, {len(ours['files'])} files byte for byte | {times} |", True


def stock_tests():
    with tempfile.TemporaryDirectory() as folder:
        source = fetch(CACHE, Path(folder))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([SHADOW, os.environ["PYTHONPATH"]])}
        files = [f"tests/test_{name}.py" for name in TESTS]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore", *files]
        said = subprocess.run(command, cwd=source, env=environment, capture_output=True, text=True)
    if said.returncode:
        print(said.stdout)
    return f"| stock's own tests | {said.stdout.strip().splitlines()[-1]} | | |", said.returncode == 0


def main():
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES))
    print("\n| program | by libst | stock, s | libst, s |\n| --- | --- | ---: | ---: |")
    chosen = sys.argv[1:]
    passed = failed = 0
    for program in chosen or [None, *PROGRAMS]:
        line, good = compare(program) if program else stock_tests()
        print(line, flush=True)
        passed, failed = passed + good, failed + (not good)
    print(f"\n{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
