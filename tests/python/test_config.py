"""libst.show_config: what the library is made of and finds, and what Python adds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import libst
import numpy as np
import pytest
from libst._library import path as library


def test_it_prints_what_it_answers(capsys):
    config = libst.show_config("dicts")
    assert libst.show_config() is None
    assert capsys.readouterr().out == "".join(f"{name}: {value}\n" for name, value in config.items())


def test_it_tells_versions_and_calls():
    config = libst.show_config(mode="dicts")
    assert config["version"] == libst.version and f"numpy {np.__version__}" in config["python"]
    assert config["platform"].startswith("Linux ") and os.uname().machine in config["platform"]
    assert os.uname().release in config["platform"]
    assert int(config["processors"]) == len(os.sched_getaffinity(0))
    assert config["library"].endswith("libst.so.2")
    calls = ("openat2", "statx", "getrandom", "OFD locks", "copy_file_range", "mincore")
    for call in (*calls, "URLs"):
        assert config[call] == "yes" or config[call].startswith("no; ")


def test_a_mode_that_is_none():
    with pytest.raises(ValueError, match="'stdout' or 'dicts', not 'text'"):
        libst.show_config("text")


ALONE = """
import ctypes, libst
try:
    ctypes.CDLL("libst-remote.so.2")
    print("the system has it")
except OSError:
    try:
        libst.load("https://libst.invalid/model.safetensors")
    except libst.Error as error:
        print(error)
        print(libst.show_config("dicts")["URLs"])
"""


def test_a_url_without_libst_remote_says_what_to_install(tmp_path):
    if not os.path.isabs(library):
        pytest.skip("the library is the system's")
    shutil.copy(library, tmp_path / "libst.so.2")
    there = os.environ | {"LIBST_LIBRARY": str(tmp_path / "libst.so.2")}
    said = subprocess.run(
        [sys.executable, "-c", ALONE], env=there, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    if said == "the system has it\n":
        pytest.skip("the system has libst-remote.so.2")
    sentence, in_report = said.splitlines()
    assert "install it: `pip install libst-remote` " in sentence and in_report == f"no; {sentence}"
