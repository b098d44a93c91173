"""Find libst.so.2 (libst-2.dll, libst.2.dylib), and load it.

In this order: the file that the environment's LIBST_LIBRARY names, the library
beside this file (where a wheel has it; of an editable install in the build tree),
the system's.
"""

import ctypes
import os
import sys
from typing import Any

SONAME = {"win32": "libst-2.dll", "darwin": "libst.2.dylib"}.get(sys.platform, "libst.so.2")
MAJOR = 2


def _beside() -> str:
    loader: Any = getattr(sys.modules.get("libst"), "__loader__", None)
    if type(loader).__module__ == "_libst_editable_loader":  # meson-python's; this file lies among the sources
        return str(loader.get_resource_reader("libst").files().joinpath(SONAME))
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), SONAME)


def _load() -> tuple[ctypes.CDLL, str]:
    beside = _beside()
    named = os.environ.get("LIBST_LIBRARY")
    if named:
        path, why = named, f"LIBST_LIBRARY names {named}, which cannot be loaded. Unset it, or let it name {SONAME}"
    elif os.path.exists(beside):
        path, why = beside, f"{beside} cannot be loaded. Install libst for Python anew"
    elif not os.path.exists(__file__):
        path = SONAME
        why = (
            f"libst for Python lies in an archive ({os.path.dirname(beside)}), from which no system loads a library, "
            f"and the system has none. Unpack the archive, install {SONAME}, or let LIBST_LIBRARY name the file"
        )
    else:
        path = SONAME
        why = (
            f"libst for Python lacks its library: it is neither {beside}, where a wheel has it, nor among the "
            f"system's. Install the package anew, or {SONAME}, or let LIBST_LIBRARY name the file"
        )
    try:
        return ctypes.CDLL(path), path
    except OSError as error:
        if hasattr(os, "statvfs") and os.path.exists(path) and os.statvfs(path).f_flag & getattr(os, "ST_NOEXEC", 0):
            why = f"{path} cannot be loaded: its filesystem is mounted noexec. Let LIBST_LIBRARY name a copy elsewhere"
        raise ImportError(f"{why} (the system says: {error}).") from None


def _checked() -> tuple[ctypes.CDLL, str, str]:
    library, path = _load()
    try:
        st_version = library.st_version
    except AttributeError:
        raise ImportError(f"{path} is not libst: it has no st_version") from None
    st_version.restype = ctypes.c_char_p
    st_version.argtypes = []
    version = st_version().decode()
    if int(version.split(".")[0]) != MAJOR:
        raise ImportError(f"{path} is libst {version}; this package needs {MAJOR}.x")
    return library, path, version


if sys.byteorder != "little":
    raise ImportError("libst for Python needs a little-endian machine")

library, path, version = _checked()
