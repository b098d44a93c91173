"""The C and C++ examples, built by pkg-config and by CMake against an installed libst, do what they say."""

from __future__ import annotations

import json
import os
import re
import shutil

import numpy as np
import pytest
from conftest import EXAMPLES, ROOT, Prefix, install, run, set_up
from safetensors.numpy import load_file

STRICT = ["-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror"]


def by_pkg_config(prefix, place):
    flags = run("pkg-config", "--cflags", "--libs", "libst", env=prefix.env).split()
    run("cc", "-std=c99", *STRICT, EXAMPLES / "list_read_update.c", *flags, "-o", place / "list_read_update")
    run("c++", "-std=c++11", *STRICT, EXAMPLES / "clear_many.cpp", *flags, "-o", place / "clear_many")


def by_cmake(prefix, place):
    strict = " ".join(STRICT)
    found = [f"-DCMAKE_PREFIX_PATH={prefix.path}", f"-DCMAKE_C_FLAGS={strict}", f"-DCMAKE_CXX_FLAGS={strict}"]
    run("cmake", "-S", EXAMPLES, "-B", place, *found)
    run("cmake", "--build", place)


@pytest.fixture(scope="module", params=[by_pkg_config, by_cmake], ids=["pkg-config", "cmake"])
def programs(request, prefix, tmp_path_factory):
    place = tmp_path_factory.mktemp("programs")
    request.param(prefix, place)
    return place


def test_the_c_example_lists_reads_and_updates(programs, prefix, model):
    def example(*arguments, fails=False):
        return run(programs / "list_read_update", model, *arguments, env=prefix.env, fails=fails)

    assert sorted(example().splitlines()) == ["b I16 [2] 4 bytes", "w F32 [2, 3] 24 bytes"]
    assert example("w") == "0 1 2 3 4 5\n"
    example("w", "2.5")
    assert example("w") == "0 2.5 5 7.5 10 12.5\n"
    now = load_file(model)
    assert (now["w"] == np.arange(6).reshape(2, 3) * 2.5).all() and (now["b"] == 1).all()
    assert "no tensor is named" in example("none", fails=True)
    assert "knows F32 only" in example("b", fails=True)


def test_the_cpp_example_changes_all_or_nothing(programs, prefix, model):
    before = model.read_bytes()
    assert "ST_E_NOT_FOUND" in run(programs / "clear_many", model, "w", "none", env=prefix.env, fails=True)
    assert model.read_bytes() == before
    assert run(programs / "clear_many", model, "w", "b", env=prefix.env) == "2 tensors are zero\n"
    assert not any(t.any() for t in load_file(model).values())


def test_programs_need_only_the_soname(programs, prefix):
    for program in ("list_read_update", "clear_many"):
        needed = re.findall(r"NEEDED.*\[(libst\.so.*)\]", run("readelf", "-d", programs / program))
        assert needed == ["libst.so.2"]


def asks_cmake(place, prefix, request: str, after: str = "") -> str:
    (place / "CMakeLists.txt").write_text(
        f"cmake_minimum_required(VERSION 3.19)\nproject(asks C)\nfind_package(libst {request})\n"
        f'message(STATUS "found <${{libst_FOUND}}> <${{libst_VERSION}}>")\n{after}'
    )
    return run("cmake", "-S", place, "-B", place / "build", f"-DCMAKE_PREFIX_PATH={prefix.path}")


@pytest.mark.parametrize("request_, found", [
    ("", True), ("2", True), ("2.0", True), ("2.0.0 EXACT", True), ("2.0...<3", True), ("1.9...2.9", False),
    ("1", False), ("2.99", False), ("3", False), ("2.0.0...<2.0.0.1", True), ("2.1...2.5", False),
])  # fmt: skip
def test_cmake_finds_versions_that_fit(prefix, tmp_path, request_, found):
    said = asks_cmake(tmp_path, prefix, request_)
    assert ("found <1> <2." in said) == found, said


def test_cmake_may_ask_twice(prefix, tmp_path):
    again = 'find_package(libst)\nif(NOT TARGET libst::libst OR _libst_lib)\nmessage(FATAL_ERROR "no")\nendif()\n'
    assert "found <1>" in asks_cmake(tmp_path, prefix, "2", again)


def test_cmake_is_told_of_what_is_missing(build, tmp_path):
    installed = Prefix(install(build, tmp_path / "install"))
    for library in installed.libdir.glob("libst.so*"):
        library.unlink()
    assert "install libst anew" in asks_cmake(tmp_path, installed, "2")


@pytest.mark.parametrize("folder", ["includedir", "libdir"])
def test_cmake_finds_folders_outside_the_prefix(tmp_path, folder):
    places = {"prefix": tmp_path / "prefix", "includedir": "include", "libdir": "lib"} | {
        folder: tmp_path / "else" / folder
    }
    options = [f"-D{name}={place}" for name, place in places.items()]
    tree = set_up(tmp_path / "tree", "-Ddefault_library=static", "-Dpkgconfig.relocatable=false", *options)
    include, library = places["prefix"] / places["includedir"], places["prefix"] / places["libdir"]
    shutil.copytree(tree / "capi" / "cmake", library / "cmake" / "libst", ignore=shutil.ignore_patterns("*.p"))
    shutil.copytree(ROOT / "capi" / "include", include)
    (library / "libst.a").touch()
    asks = tmp_path / "asks"
    asks.mkdir()
    (asks / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.19)\nproject(asks C)\n"
        "find_package(libst 2 REQUIRED)\n"
        "foreach(property IMPORTED_LOCATION INTERFACE_INCLUDE_DIRECTORIES)\n"
        "get_target_property(is libst::static ${property})\nmessage(STATUS <${is}>)\nendforeach()\n"
    )
    said = run("cmake", "-S", asks, "-B", asks / "build", f"-Dlibst_DIR={library / 'cmake' / 'libst'}")
    assert f"<{library / 'libst.a'}>" in said and f"<{include}>" in said


def test_a_warning_of_a_compiler_to_come_is_no_error(tmp_path):
    """Whoever builds a release takes the compiler that is there."""
    options = json.loads(run("meson", "introspect", "--buildoptions", set_up(tmp_path / "tree")))
    assert next(option["value"] for option in options if option["name"] == "werror") is False


def test_what_is_installed_names_no_place(prefix, build):
    for text in [*prefix.path.rglob("*.pc"), *prefix.path.rglob("*.cmake")]:
        content = text.read_text()
        assert str(ROOT) not in content and str(build) not in content and "/usr" not in content, text
        assert os.access(text, os.R_OK)


def test_what_is_installed_can_be_uninstalled(build, tmp_path):
    installed = install(build, tmp_path)
    assert any(p.is_file() for p in installed.rglob("*"))
    run("ninja", "-C", build, "uninstall")
    assert not [p for p in tmp_path.rglob("*") if p.is_file() or p.is_symlink()]
