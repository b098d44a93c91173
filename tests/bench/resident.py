"""Memory that an open file's index costs, in a process that does nothing else.

    resident.py stock|c-abi|python FILE    prints the growth of resident and of anonymous memory, in bytes
"""

import ctypes
import os
import sys

who, path = sys.argv[1:]
libc = ctypes.CDLL(None)


def resident() -> dict[str, int]:
    libc.malloc_trim(0)  # what the allocator merely keeps for later is not the index
    with open("/proc/self/status") as f:
        return {line.split(":")[0]: int(line.split()[1]) * 1024 for line in f if line.startswith(("VmRSS", "RssAnon"))}


if who == "stock":
    from safetensors import safe_open

    def open_it():
        return safe_open(path, framework="np")
elif who == "python":
    import libst

    def open_it():
        return libst.open(path)
else:
    library = ctypes.CDLL(os.environ["LIBST_LIBRARY"])

    def open_it():
        handle = ctypes.c_void_p()
        assert library.st_open(os.fsencode(path), None, ctypes.byref(handle)) == 0
        return handle


resident()  # once for what it needs itself
before = resident()
keep = open_it()
after = resident()
print(after["VmRSS"] - before["VmRSS"], after["RssAnon"] - before["RssAnon"])
