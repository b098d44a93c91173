"""The build backend of pyproject.toml: meson-python, but the wheel is for every Python 3 of its platform.

It has no extension module, only a library that ctypes loads; meson-python takes what lies beside a package for one.
"""

import os
import subprocess
import sys

import mesonpy
from mesonpy import *  # noqa: F403  the other hooks


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = mesonpy.build_wheel(wheel_directory, config_settings, metadata_directory)
    retag = [sys.executable, "-m", "wheel", "tags", "--remove", "--python-tag", "py3", "--abi-tag", "none"]
    return subprocess.check_output([*retag, os.path.join(wheel_directory, name)], text=True).split()[-1]
