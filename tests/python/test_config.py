"""libst.show_config: what the library is made of and finds, and what Python adds."""

from __future__ import annotations

import os

import libst
import numpy as np
import pytest


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
