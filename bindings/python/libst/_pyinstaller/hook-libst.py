"""PyInstaller runs this for a program that imports libst."""

from pathlib import Path

# The library, and that for URLs: ctypes and libst load them by their paths.
binaries = [(str(file), "libst") for file in Path(__file__).resolve().parents[1].glob("libst*") if file.is_file()]
