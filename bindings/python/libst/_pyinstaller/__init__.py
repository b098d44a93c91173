"""What PyInstaller is told of libst, by the entry point `pyinstaller40` of pyproject.toml: a frozen program has what no
import names."""

import os


def hook_dirs() -> list[str]:
    return [os.path.dirname(os.path.abspath(__file__))]
