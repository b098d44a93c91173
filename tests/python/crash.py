"""Writers that crash: what they leave behind is for libst.recover and libst.open to finish or drop."""

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

_PROGRAM = """
import os, sys, numpy as np, libst
path, name, array, commit = sys.argv[1:]
f = libst.open(path, "r+")
t = f.transaction()
t.update(name, np.load(array))
if commit == "yes":
    t.commit()
os._exit(7)
"""

# Ends the process when it first writes to the file that CRASH_AT names, or to one with CRASH_IN in its path.
_SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>
#undef pwrite
#undef pwrite64
static void crash_at(int fd) {
  char link[64], name[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = readlink(link, name, sizeof name - 1);
  if (n < 0) return;
  name[n] = 0;
  const char *at = getenv("CRASH_AT");
  const char *in = getenv("CRASH_IN");
  if ((at && strcmp(name, at) == 0) || (in && strstr(name, in))) _exit(7);
}
typedef ssize_t (*write_fn)(int, const void *, size_t, off64_t);
ssize_t pwrite(int fd, const void *b, size_t n, off64_t o) {
  crash_at(fd);
  return ((write_fn)dlsym(RTLD_NEXT, "pwrite"))(fd, b, n, o);
}
ssize_t pwrite64(int fd, const void *b, size_t n, off64_t o) {
  crash_at(fd);
  return ((write_fn)dlsym(RTLD_NEXT, "pwrite64"))(fd, b, n, o);
}
"""


@functools.cache
def _shim():
    if not shutil.which("cc"):
        pytest.skip("there is no C compiler to make a program crash with")
    folder = Path(tempfile.mkdtemp())
    (folder / "shim.c").write_text(_SHIM)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-std=gnu99", str(folder / "shim.c"), "-o", str(folder / "shim.so"), "-ldl"],
        check=True,
    )
    return folder / "shim.so"


def journals(path):
    """What lies in the journal folder of a file."""
    folder = path.with_name(path.name + ".st-journal")
    return sorted(folder.iterdir()) if folder.exists() else []


def _crash(path, name, array, commit, **environment):
    import numpy as np

    values = path.with_name("values.npy")
    np.save(values, array)
    arguments = [sys.executable, "-c", _PROGRAM, str(path), name, str(values), commit]
    done = subprocess.run(arguments, env={**os.environ, **environment})
    assert done.returncode == 7
    assert len(journals(path)) == 1


def while_staging(path, name, array):
    """Die before the commit: the journal is to be dropped."""
    _crash(path, name, array, "no")


def after_commit(path, name, array):
    """Die when the journal is durable and before the file is written: the change is to be finished."""
    before = path.read_bytes()
    _crash(path, name, array, "yes", LD_PRELOAD=str(_shim()), CRASH_AT=os.path.realpath(path))
    assert path.read_bytes() == before
