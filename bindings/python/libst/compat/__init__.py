"""In place of the package `safetensors` 0.8: the same names, signatures and files, by libst. And what 0.9 adds.

    from libst.compat import safe_open                  # from safetensors import safe_open
    from libst.compat.torch import load_file, save_file  # from safetensors.torch import ...

or, for a program that is not to be changed,

    import libst.compat; libst.compat.install()         # before it imports safetensors
    python -m libst.compat program.py arguments...      # or -m module, -c code, -
    LIBST_COMPAT=1 python program.py arguments...       # where libst is installed
"""

from ._install import install
from ._open import PySafeSlice
from ._prefetch import PrefetchLoader, PrefetchPlan, TensorMeta
from ._safetensors_rust import SafetensorError, TensorSpec, deserialize, safe_open, serialize, serialize_file
from ._safetensors_rust import __version__ as __version__
from ._safetensors_rust import _safe_open_handle as _safe_open_handle

__all__ = [
    "PrefetchLoader",
    "PrefetchPlan",
    "PySafeSlice",
    "SafetensorError",
    "TensorMeta",
    "TensorSpec",
    "deserialize",
    "install",
    "safe_open",
    "serialize",
    "serialize_file",
]
