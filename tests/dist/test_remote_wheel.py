"""The wheel of libst-remote beside that of libst, where the system has no libst: URLs are read."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT, library, made, run, web_server, wheel

LARGEST = 10 << 20

LOAD = """
import libst, re, sys
try:
    print(libst.load(sys.argv[1])["w"].sum())
    mapped = set(re.findall(r"/\\S*lib(?:curl|crypto|ssl|st-remote)\\S*", open("/proc/self/maps").read()))
    print(*sorted(mapped))
except libst.Error as error:
    print(error.status_name, error)
"""


def remote_wheel() -> Path:
    return made("libst_remote-*.whl")


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """In an environment that has libst alone."""
    venv = tmp_path_factory.mktemp("venv")
    run(sys.executable, "-m", "venv", venv)
    pip(venv / "bin/python", wheel("manylinux2014_x86_64"))
    return venv / "bin" / "python"


def pip(python, *what):
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *what)


def test_urls_are_read_with_it_and_without_it_a_sentence_names_it(python, tmp_path):
    run(
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-addext",
        "subjectAltName=IP:127.0.0.1", "-keyout", tmp_path / "key", "-out", tmp_path / "certificate",
    )  # fmt: skip
    both = tmp_path / "both"
    both.write_text((tmp_path / "certificate").read_text() + (tmp_path / "key").read_text())
    served = tmp_path / "served"
    served.mkdir()
    run(python, "-c", "import libst, numpy; libst.save('m.safetensors', {'w': numpy.ones(6)})", cwd=served)

    with web_server(served, certificate=both) as url:

        def load(*environment):
            return run("env", "-i", *environment, python, "-c", LOAD, f"{url}/m.safetensors", cwd=tmp_path)

        said = load()
        assert "`pip install libst-remote`" in said and said.startswith("ST_E_UNSUPPORTED "), said
        pip(python, "--no-deps", remote_wheel())
        total, *libraries = load(f"SSL_CERT_FILE={tmp_path}/certificate").split()
        assert total == "6.0"
        site = str(python.parents[1])
        assert len(libraries) >= 4 and all(path.startswith(site) for path in libraries), libraries
        assert "certificate" in load()  # which no authority has signed


def test_it_says_where_it_runs_and_carries_licenses(tmp_path):
    path = remote_wheel()
    assert path.name.endswith("-py3-none-manylinux_2_36_x86_64.whl") and path.stat().st_size <= LARGEST
    with zipfile.ZipFile(path) as packed:
        names = packed.namelist()
        packed.extractall(tmp_path)
    assert "libst/libst-remote.so.2" in names
    bundled = {re.sub(r"-[0-9a-f]{8}\.so.*", "", Path(name).name) for name in names if ".libs/" in name}
    assert {"libcurl", "libssl", "libcrypto"} <= bundled
    licenses = {Path(name).name for name in names if "/licenses/" in name}
    assert {"LICENSE", "libcurl4", "libssl3"} <= licenses and len(licenses) > len(bundled)
    exported = run("nm", "-D", "--defined-only", tmp_path / "libst/libst-remote.so.2")
    assert re.findall(r" \w (\w+)$", exported, re.M) == ["st_remote_v1"], exported


def test_the_library_of_the_other_wheel_needs_nothing_of_it(tmp_path):
    needed = run("readelf", "-dW", library("manylinux2014_x86_64", tmp_path))
    assert not re.search("curl|ssl|crypto|xml", needed)


def test_the_readme_names_it():
    assert f"`pip install dist/{remote_wheel().name}`" in (ROOT / "README.md").read_text()
