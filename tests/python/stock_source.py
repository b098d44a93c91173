"""The source distribution of stock, from PyPI, as that has stock's own tests."""

import os
import subprocess
import sys
import tarfile

NAME = "safetensors-0.8.0"

# pip asks a source distribution's build system for metadata before it hands over the file. The real one wants Rust.
BUILD_SYSTEM = f"""
import os
def prepare_metadata_for_build_wheel(folder, settings=None):
    os.mkdir(os.path.join(folder, "{NAME}.dist-info"))
    with open(os.path.join(folder, "{NAME}.dist-info", "METADATA"), "w") as f:
        f.write("Metadata-Version: 2.1\\nName: safetensors\\nVersion: {NAME.split("-")[1]}\\n")
    return "{NAME}.dist-info"
"""


def fetch(cache, folder):
    """Unpack it into a folder, of which the path of its Python package is the answer; None if it cannot be had."""
    archive = cache / f"{NAME}.tar.gz"
    if not archive.exists():
        (folder / "maturin.py").write_text(BUILD_SYSTEM)
        command = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
        command += ["--no-build-isolation", "--no-binary", ":all:", "-d", cache, NAME.replace("-", "==")]
        said = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(folder)}, capture_output=True)
        if said.returncode:
            return None
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder / NAME / "bindings" / "python"
