"""What this libst is made of, and what it finds here: for people, and for reports of bugs."""

import platform
from typing import Optional

import numpy as np

from . import _abi
from ._library import path as library_path
from .dtypes import ML_DTYPES


def show_config(mode: str = "stdout") -> Optional[dict[str, str]]:
    """Print how libst was built and what it finds here; with mode="dicts" return that as a dict.

    The versions of all that is inside, the settings of the environment, and each system call that an old kernel or a
    sandbox may lack: "yes", or "no; " and what is done without it. `st_build_info` in st.h tells more. Lines may be
    added in later versions.
    """
    if mode not in ("stdout", "dicts"):
        raise ValueError(f"mode is 'stdout' or 'dicts', not {mode!r}")
    config = dict(line.split(": ", 1) for line in _abi.st_build_info().decode("utf-8", "replace").splitlines())
    config["library"] = library_path
    config["python"] = f"{platform.python_version()}, numpy {np.__version__}, {ML_DTYPES}"
    if mode == "dicts":
        return config
    print("\n".join(f"{name}: {value}" for name, value in config.items()))
    return None
