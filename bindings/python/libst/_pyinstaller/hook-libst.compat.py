"""PyInstaller runs this for a program that imports libst.compat.

After `install()` its modules are found under the names of the package safetensors. Those of frameworks go along as
sources: as imports they would bring the frameworks into programs that have no use for them.
"""

from pathlib import Path

_FOLDER = Path(__file__).resolve().parents[1] / "compat"
_OF_FRAMEWORKS = [_FOLDER / "flax.py", _FOLDER / "torch.py"]

hiddenimports = [f"libst.compat.{file.stem}" for file in sorted(_FOLDER.glob("[!_]*.py")) if file not in _OF_FRAMEWORKS]
datas = [(str(file), "libst/compat") for file in _OF_FRAMEWORKS]
