"""Found on PYTHONPATH before the stock package. Importers get what `install` leaves in sys.modules.

Another Python may find it, too. Where that has no libst, the one around this file is taken. Where libst cannot run, as
without numpy, the stock package is imported, from further down the path.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import sys
import warnings
from contextlib import suppress
from typing import Any

_SHADOW = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(_SHADOW)))


def _install() -> None:
    try:
        compat = importlib.import_module("libst.compat")
    except Exception:
        spec: Any = importlib.machinery.PathFinder.find_spec("libst", [_ROOT])
        if spec is None or not _imported_before.isdisjoint(_of_libst()):
            raise  # a program's own libst stays
        _forget()
        _import_from(spec)
        compat = importlib.import_module("libst.compat")
    compat.install()


def _import_from(spec: Any) -> None:
    """Its folder is not put on the path: it may hold packages of another Python."""
    module = importlib.util.module_from_spec(spec)
    sys.modules["libst"] = module
    spec.loader.exec_module(module)


def _of_libst() -> set[str]:
    return {name for name in sys.modules if name == "libst" or name.startswith("libst.")}


def _forget() -> None:
    for name in _of_libst() - _imported_before:
        del sys.modules[name]


_imported_before = _of_libst()
del sys.modules[__name__]  # for what is put there now
try:
    _install()
except Exception as error:
    _forget()
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != _SHADOW]
    importlib.import_module(__name__)
    with suppress(RuntimeWarning):  # where warnings are errors
        warnings.warn(
            f"libst cannot be imported here ({error}): safetensors is the stock package", RuntimeWarning, stacklevel=2
        )
