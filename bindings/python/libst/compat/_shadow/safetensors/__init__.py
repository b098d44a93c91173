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
from typing import Any

_SHADOW = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(_SHADOW)))


def _install() -> None:
    try:
        compat = importlib.import_module("libst.compat")
    except Exception:
        _forget()
        _import_from_root()
        compat = importlib.import_module("libst.compat")
    compat.install()


def _import_from_root() -> None:
    """That folder is not put on the path: it may hold packages of another Python."""
    spec: Any = importlib.machinery.PathFinder.find_spec("libst", [_ROOT])
    module = importlib.util.module_from_spec(spec)
    sys.modules["libst"] = module
    spec.loader.exec_module(module)


def _forget() -> None:
    for name in [name for name in sys.modules if name == "libst" or name.startswith("libst.")]:
        del sys.modules[name]


del sys.modules[__name__]  # for what is put there now
try:
    _install()
except Exception as error:
    _forget()
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != _SHADOW]
    importlib.import_module(__name__)
    warnings.warn(
        f"libst cannot be imported here ({error}): safetensors is the stock package", RuntimeWarning, stacklevel=2
    )
