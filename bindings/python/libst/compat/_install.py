"""Put libst.compat into the place of the package `safetensors`."""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import warnings
from collections.abc import Sequence
from types import ModuleType
from typing import Optional

_OURS = "libst.compat"
_STOCK = "safetensors"
_MODULES = ("numpy", "torch", "flax", "_safetensors_rust")

#: A folder with a package `safetensors` in it that installs us. On PYTHONPATH it reaches child processes.
SHADOW = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_shadow")
_SHADOWS = os.path.join("libst", "compat", "_shadow")  # also of another libst, whose program has started this one


def install() -> None:
    """Let `import safetensors`, and its numpy, torch and flax, mean libst from now on in this process.

    Call it before anything else imports safetensors, or it warns: who did keeps what it took. Its modules
    tensorflow, mlx and paddle, which libst has not, are those of the stock package, if that is installed; they find
    libst under the name safetensors.
    """
    stock = sys.modules.get(_STOCK)
    if stock is not None and stock is not sys.modules.get(_OURS):
        warnings.warn(
            "libst.compat.install() came too late: safetensors is imported already, and whoever did "
            "`from safetensors import ...` goes on with it; call install() before, or set LIBST_COMPAT=1",
            RuntimeWarning,
            stacklevel=2,
        )
    for name in [name for name in sys.modules if name == _STOCK or name.startswith(_STOCK + ".")]:
        del sys.modules[name]
    ours = importlib.import_module(_OURS)
    sys.modules[_STOCK] = ours
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Finds `safetensors.torch` in libst.compat, at its first import, as it imports torch."""

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        package, _, name = fullname.partition(".")
        if package != _STOCK or not name or sys.modules.get(_STOCK) is not sys.modules.get(_OURS):
            return None
        if name in _MODULES:
            return importlib.machinery.ModuleSpec(fullname, _Alias(f"{_OURS}.{name}"))
        folders = [folder for folder in sys.path if not os.path.abspath(folder or ".").endswith(_SHADOWS)]
        stock = importlib.machinery.PathFinder.find_spec(_STOCK, folders)
        if stock is None or stock.submodule_search_locations is None:
            return None
        return importlib.machinery.PathFinder.find_spec(fullname, list(stock.submodule_search_locations))


class _Alias(importlib.abc.Loader):
    """Gives a module that has another name already."""

    def __init__(self, name: str) -> None:
        self._name = name

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:  # pyright: ignore[reportIncompatibleMethodOverride]
        module = importlib.import_module(self._name)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # its own again, which the import system has just replaced
