"""What a test leaves behind makes it fail: descriptors, and mappings of models, once garbage is collected.

Beside the report stands the name of the test that runs, for a run that is killed (tests/tally.py).
"""

import gc
import os
from pathlib import Path

import pytest


def pytest_runtest_protocol(item):
    if report := item.config.option.xmlpath:
        Path(report + ".running").write_text(item.nodeid)


def belongings():
    """Open descriptors with what they lead to, and mapped models; each as a line for a reader."""
    found = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.add(f"descriptor {fd}, {os.readlink(f'/proc/self/fd/{fd}')}")
        except FileNotFoundError:
            pass  # the listing's own
    with open("/proc/self/maps") as maps:
        found.update(f"mapping {line.rstrip()}" for line in maps if ".safetensors" in line)
    return found


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    before = belongings()
    yield
    if belongings() - before:
        gc.collect()
        left = belongings() - before
        assert not left, "the test leaves behind:\n" + "\n".join(sorted(left))
