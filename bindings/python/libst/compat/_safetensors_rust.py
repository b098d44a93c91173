"""The names that stock has in its extension module, from where other packages import them, too."""

from ._bytes import TensorSpec, deserialize, serialize, serialize_file
from ._errors import SafetensorError
from ._open import PySafeSlice, _safe_open_handle, safe_open
from ._prefetch import PrefetchLoader, TensorMeta

#: The version of the stock package whose place this takes; programs ask for it.
__version__ = "0.8.0"

__all__ = [
    "PrefetchLoader",
    "PySafeSlice",
    "SafetensorError",
    "TensorMeta",
    "TensorSpec",
    "__version__",
    "_safe_open_handle",
    "deserialize",
    "safe_open",
    "serialize",
    "serialize_file",
]
