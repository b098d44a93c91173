"""What the figures of a report depend on: the machine and the versions. No names of hosts, no paths."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path


def facts(python: Path, build: Path) -> dict[str, str]:
    place = Path(os.environ.get("BENCH_DIR", build))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    found = {
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{memory / (1 << 30):.0f} GiB",
        "kernel": f"{platform.system()} {platform.release().split('-')[0]}",
        "files on": _said("findmnt", "-no", "FSTYPE", "-T", str(place)),
        "compiler": _said("g++", "-dumpfullversion", prefix="g++ "),
        "Python": platform.python_version(),
        "numpy": _version(python, "numpy"),
        "safetensors for Python": _version(python, "safetensors"),
        "libst": _version(python, "libst"),
    }
    if shutil.which("cargo"):
        lock = (Path(__file__).parent / "rust/Cargo.lock").read_text()
        crate = re.search(r'name = "safetensors"\nversion = "([^"]*)"', lock)
        found["Rust"] = _said("rustc", "--version").split(" (")[0]
        found["safetensors for Rust"] = crate[1] if crate else ""
    if shutil.which("go"):
        found["Go"] = _said("go", "version").split()[2].removeprefix("go")
    return {name: value for name, value in found.items() if value}


def _said(*command: str, prefix: str = "", environment: dict[str, str] | None = None) -> str:
    try:
        out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return prefix + out.strip()


def _version(python: Path, package: str) -> str:
    root = Path(__file__).resolve().parents[2]
    library = os.environ.get("LIBST_LIBRARY", str(root / "build-bench/capi/libst.so.2"))
    environment = {**os.environ, "PYTHONPATH": str(root / "bindings/python"), "LIBST_LIBRARY": library}
    return _said(str(python), "-c", f"import {package}; print({package}.__version__)", environment=environment)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
