"""Projects of others that take libst in: static, by CMake, by Meson, and as a subproject of Meson."""

from __future__ import annotations

import re
import shutil

import pytest
from conftest import EXAMPLES, ROOT, Prefix, install, quick_compiler, run, set_up
from safetensors.numpy import load_file

PROGRAM = EXAMPLES / "list_read_update.c"


def works(program, model, env=None):
    """It reads a tensor and doubles it."""
    assert run(program, model, "w", env=env) == "0 1 2 3 4 5\n"
    run(program, model, "w", "2", env=env)
    assert load_file(model)["w"].tolist() == [[0, 2, 4], [6, 8, 10]]


def libraries(program) -> set[str]:
    return set(re.findall(r"NEEDED.*\[(.*?)\.so", run("readelf", "-d", program)))


@pytest.fixture(scope="module")
def static_alone(build, tmp_path_factory) -> Prefix:
    """As default_library=static installs it."""
    prefix = Prefix(install(build, tmp_path_factory.mktemp("static")))
    assert (prefix.libdir / "libst.a").exists(), "tests/setup.sh builds it: default_library=both"
    for shared in prefix.libdir.glob("libst.so*"):
        shared.unlink()
    place = tmp_path_factory.mktemp("tree")
    tree = set_up(place / "build", "-Ddefault_library=static", "-Dpkgconfig.relocatable=true")
    shutil.copy(tree / "meson-private" / "libst.pc", prefix.libdir / "pkgconfig")
    shutil.copy(tree / "capi" / "cmake" / "libstConfig.cmake", prefix.cmake_dir)
    return prefix


@pytest.mark.parametrize("options", [["--static"], []], ids=["static", "plain"])
def test_a_static_program_by_pkg_config(static_alone, model, tmp_path, options):
    flags = run("pkg-config", *options, "--cflags", "--libs", "libst", env=static_alone.env).split()
    run("cc", "-std=c99", PROGRAM, *flags, "-o", tmp_path / "program")
    assert "libst" not in libraries(tmp_path / "program")
    works(tmp_path / "program", model)


def test_a_program_beside_a_build_tree_by_pkg_config(build, model, tmp_path):
    env = {"PKG_CONFIG_PATH": str(build / "meson-uninstalled"), "LD_LIBRARY_PATH": str(build / "capi")}
    flags = run("pkg-config", "--cflags", "--libs", "libst", env=env).split()
    run("cc", "-std=c99", PROGRAM, *flags, "-o", tmp_path / "program")
    works(tmp_path / "program", model, env)


def test_a_static_program_by_cmake(prefix, model, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.19)\nproject(asks C)\nfind_package(libst 2 REQUIRED)\n"
        f"add_executable(program {PROGRAM})\ntarget_link_libraries(program PRIVATE libst::static)\n"
    )
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix.path}")
    run("cmake", "--build", tmp_path / "build")
    assert "libst" not in libraries(tmp_path / "build" / "program")
    works(tmp_path / "build" / "program", model)


def test_only_the_names_of_the_header_are_seen_in_the_static_library(prefix):
    said = run("nm", "--defined-only", "--extern-only", "--format=posix", prefix.libdir / "libst.a")
    seen = {words[0] for words in map(str.split, said.splitlines()) if len(words) > 1}
    assert seen == set(re.findall(r"^    (st_\w+);", (ROOT / "capi" / "st.map").read_text(), re.M))


CPP = """
#include <st/st.h>
#include <charconv>
#include <cstdio>
#include <memory>
#include <string>
int main(int n, char **) {
  char text[32];
  std::to_chars(text, text + 32, n);
  std::puts((std::to_string(n) + *std::make_shared<std::string>(st_version())).c_str());
}
"""


def test_a_static_program_in_cpp_has_inline_constants_of_its_own(static_alone, tmp_path):
    (tmp_path / "program.cpp").write_text(CPP)
    flags = run("pkg-config", "--static", "--cflags", "--libs", "libst", env=static_alone.env).split()
    run("c++", "-O2", tmp_path / "program.cpp", *flags, "-o", tmp_path / "program")
    assert run(tmp_path / "program").startswith("12.")


@pytest.fixture
def project(tmp_path):
    shutil.copytree(EXAMPLES, tmp_path / "project")
    return tmp_path / "project"


def test_a_meson_project_finds_a_libst_that_is_static_alone(static_alone, project, model):
    run("meson", "setup", project / "build", project, "--wrap-mode=nofallback", env=static_alone.env)
    run("ninja", "-C", project / "build", "list_read_update")
    assert "libst" not in libraries(project / "build" / "list_read_update")
    works(project / "build" / "list_read_update", model)


def test_a_meson_project_finds_an_installed_libst(prefix, project, model):
    run("meson", "setup", project / "build", project, "--wrap-mode=nofallback", env=prefix.env)
    run("ninja", "-C", project / "build")
    assert "libst" in libraries(project / "build" / "list_read_update")
    works(project / "build" / "list_read_update", model, prefix.env)


@pytest.mark.timeout(1500)
def test_a_meson_project_has_libst_as_a_subproject(project, model):
    (project / "subprojects").mkdir()
    (project / "subprojects" / "libst").symlink_to(ROOT)
    # Not optimised: what is tried is how it is put together.
    options = ["--buildtype=plain", "--force-fallback-for=libst", "-Dunity=on", "-Dunity_size=24"]
    run("meson", "setup", project / "build", project, *options, env=quick_compiler())
    run("ninja", "-C", project / "build", "list_read_update")
    assert (project / "build" / "subprojects" / "libst" / "capi" / "libst.so.2").exists()
    works(project / "build" / "list_read_update", model)
