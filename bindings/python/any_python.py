"""The build backend of pyproject.toml: meson-python, but the wheel is for every Python 3 of its platform.

It has no extension module, only a library that ctypes loads; meson-python takes what lies beside a package for one.
The source package carries what libst is compiled with, so that a build of it takes a compiler and no network.
"""

import gzip
import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import mesonpy
from mesonpy import *  # noqa: F403  the other hooks

WRAPS = "core/subprojects"
# By wrap: the files that it takes, as patterns.
CARRIED = {
    "simdjson": ["LICENSE", "meson.build", "singleheader/simdjson.cpp", "singleheader/simdjson.h"],
    "tl-expected": ["meson.build", "include/tl/expected.hpp"],
    "xxhash": ["LICENSE", "meson.build", "xxhash.h"],
    "zstd": [
        "LICENSE",
        "meson.build",
        "lib/zstd.h",
        "lib/zstd_errors.h",
        "lib/common/*.[ch]",
        "lib/compress/*.[ch]",
        "lib/decompress/*.[ch]",
    ],
}


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    name = mesonpy.build_wheel(wheel_directory, config_settings, metadata_directory)
    retag = [sys.executable, "-m", "wheel", "tags", "--remove", "--python-tag", "py3", "--abi-tag", "none"]
    return subprocess.check_output([*retag, os.path.join(wheel_directory, name)], text=True).split()[-1]


def build_sdist(sdist_directory, config_settings=None):
    settings = dict(config_settings or {})
    given = settings.get("setup-args", [])
    # So Meson unpacks the wraps, also where the system has these libraries.
    settings["setup-args"] = [*([given] if isinstance(given, str) else given), "--wrap-mode=forcefallback"]
    name = mesonpy.build_sdist(sdist_directory, settings)
    path = os.path.join(sdist_directory, name)
    with gzip.open(path) as packed:
        plain = io.BytesIO(packed.read())
    top = name[: -len(".tar.gz")]
    with tarfile.open(fileobj=plain, mode="a") as archive:
        when = int(os.environ.get("SOURCE_DATE_EPOCH") or archive.getmember(top + "/PKG-INFO").mtime)
        for wrap, files in CARRIED.items():
            with open(f"{WRAPS}/{wrap}.wrap") as text:
                (folder,) = re.findall(r"^directory = (.*)$", text.read(), re.M)
            for source in sorted(found for pattern in files for found in Path(WRAPS, folder).glob(pattern)):
                member = archive.gettarinfo(source, f"{top}/{source}")
                member.uid = member.gid = 0
                member.uname = member.gname = ""
                member.mode, member.mtime = 0o644, when
                with open(source, "rb") as content:
                    archive.addfile(member, content)
    with open(path, "wb") as out, gzip.GzipFile("", "wb", fileobj=out, mtime=when) as packed:
        packed.write(plain.getvalue())
    return name
