"""In place of the package `safetensors` 0.8: the same names, signatures and files, by libst.

    from libst.compat import safe_open                  # from safetensors import safe_open
    from libst.compat.torch import load_file, save_file  # from safetensors.torch import ...

or, for a program that is not to be changed,

    import libst.compat; libst.compat.install()         # before it imports safetensors
    python -m libst.compat program.py arguments...
"""

from ._bytes import TensorSpec, deserialize, serialize, serialize_file
from ._errors import SafetensorError
from ._install import install
from ._open import _safe_open_handle as _safe_open_handle
from ._open import safe_open

#: Of the stock package whose place this takes; programs ask for it.
__version__ = "0.8.0"

__all__ = ["SafetensorError", "TensorSpec", "deserialize", "install", "safe_open", "serialize", "serialize_file"]
