"""libst.show_config: what the library is made of and finds, and what Python adds."""

from __future__ import annotations

import os
import subprocess
import sys

import libst
import numpy as np
import pytest

# A sandbox that forbids a call: the library is told so by a filter of system calls, as containers have them.
WITHOUT_A_CALL = """
import ctypes, platform, struct
number = {"x86_64": {"copy_file_range": 326, "openat2": 437}, "aarch64": {"copy_file_range": 285, "openat2": 437}}
answer_errno, allow = 0x00050000 | 38, 0x7FFF0000  # ENOSYS
program = [(0x20, 0, 0, 0)]  # the number of the call
for forbidden in number[platform.machine()].values():
    program += [(0x15, 0, 1, forbidden), (0x06, 0, 0, answer_errno)]
program += [(0x06, 0, 0, allow)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in program))
filter = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, filter, 0, 0) == 0, ctypes.get_errno()
import libst, numpy
config = libst.show_config("dicts")
assert config["copy_file_range"] == "no; new files are copied by reads and writes", config
assert config["openat2"].startswith("no; paths are walked") and config["getrandom"] == "yes", config
libst.save("f.safetensors", {"a": numpy.arange(4.0), "b": numpy.ones(3)})
with libst.open("f.safetensors", "r+") as f:
    with f.transaction() as t:
        t.delete("b")
    assert list(f) == ["a"]
"""


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
    for call in ("openat2", "statx", "getrandom", "OFD locks", "copy_file_range", "mincore"):
        assert config[call] == "yes" or config[call].startswith("no; ")


def test_a_mode_that_is_none():
    with pytest.raises(ValueError, match="'stdout' or 'dicts', not 'text'"):
        libst.show_config("text")


@pytest.mark.skipif(os.uname().machine not in ("x86_64", "aarch64"), reason="knows no numbers of calls here")
def test_it_tells_what_a_sandbox_forbids_and_libst_goes_on_without(tmp_path):
    subprocess.run([sys.executable, "-c", WITHOUT_A_CALL], cwd=tmp_path, check=True)
