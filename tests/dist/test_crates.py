"""The crates that dist.sh packs: a project outside of all sources, offline, with nothing of libst installed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest
from conftest import BUILD, ROOT, block, long, made, run, sources_of_zstd, web_server
from safetensors.numpy import load_file, save_file

pytestmark = [
    pytest.mark.timeout(1500),  # it compiles all of libst once
    pytest.mark.skipif(not shutil.which("cargo"), reason="there is no cargo"),
]


@pytest.fixture(scope="module")
def unpacked() -> Path:
    """Always in the same place, so that ccache knows what it has compiled there."""
    place = BUILD / "dist" / "unpacked"
    shutil.rmtree(place, ignore_errors=True)
    for crate in ("libst-sys", "libst"):
        with tarfile.open(made(f"{crate}-[0-9]*.crate")) as packed:
            packed.extractall(place, filter="data")
    return place


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """As on a machine that has no libst: pkg-config finds nothing, and nothing names one."""
    unset = {"LIBST_DIR", "LIBST_LIBRARY", "LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "RUSTFLAGS", "CARGO_TARGET_DIR"}
    kept = {k: v for k, v in os.environ.items() if k not in unset}
    kept["PATH"] = f"/usr/lib/ccache:{kept['PATH']}"
    flags = os.environ.get("DIST_CXXFLAGS", "")
    compilers = {name: os.environ[f"DIST_{name}"] for name in ("CC", "CXX") if f"DIST_{name}" in os.environ}
    return kept | compilers | {"PKG_CONFIG_LIBDIR": "/nonexistent", "CXXFLAGS": flags, "CFLAGS": flags}


# What the feature `remote` wants of the system.
FOR_URLS = ["libcurl", "libcrypto", "pugixml"]

# One model becomes the other by their delta.
TRAIN = """
fn main() -> libst::Result<()> {
    libst::diff("a.safetensors", "b.safetensors", "delta")?;
    libst::patch("a.safetensors", "delta").map(|_| ())
}
"""


def project(place: Path, manifest: str) -> Path:
    (place / "src/bin").mkdir(parents=True)
    (place / "Cargo.toml").write_text('[package]\nname = "program"\nedition = "2021"\n' + manifest)
    shutil.copy(ROOT / "bindings/rust/Cargo.lock", place)  # versions that are here
    (place / "src" / "main.rs").write_text(block("README.md", "rust"))
    (place / "src/bin/train.rs").write_text(TRAIN)
    return place


@pytest.fixture(scope="module")
def program(unpacked, environment) -> Path:
    """The README's program, built as the README says: beside the unpacked crates."""
    folder = project(unpacked / "program", block("bindings/rust/libst/README.md", "toml"))
    run("cargo", "build", "--offline", "--quiet", cwd=folder, env=environment | {"RUSTFLAGS": "-Dwarnings"})
    return folder / "target" / "debug" / "program"


def test_the_folders_of_libraries_are_no_reason_to_compile_anew(program, environment):
    environment = environment | {"RUSTFLAGS": "-Dwarnings", "LD_LIBRARY_PATH": "/nonexistent"}
    command = ["cargo", "build", "--offline", "--verbose"]
    done = subprocess.run(command, cwd=program.parents[2], env=environment, capture_output=True, text=True, check=True)
    assert "Fresh libst" in done.stderr and not re.search("Compiling|Dirty", done.stderr), done.stderr


def test_a_fresh_project_compiles_libst_and_changes_a_file(program, environment, tmp_path):
    path = tmp_path / "model.safetensors"
    names = ["conv1.bias", "final_conv.bias"]
    save_file({"lstm_cell.weight_ih": np.ones((8, 4), np.float32)} | {n: np.ones(3, np.float32) for n in names}, path)
    run(program, cwd=tmp_path, env={})
    now = load_file(path)
    assert not now["conv1.bias"].any() and now["head"].tobytes() == np.ones((4, 4), np.float32).tobytes()
    assert "output.bias" in now and "final_conv.bias" not in now


def test_deltas_hold_the_elements_that_changed(program, tmp_path):
    weights = np.random.default_rng(1).random(100_000, np.float32)
    stepped = weights.copy()
    stepped[::50] *= 1.01
    for name, array in ("a", weights), ("b", stepped):
        save_file({"w": array}, tmp_path / f"{name}.safetensors")
    run(program.with_name("train"), cwd=tmp_path, env={})
    assert (tmp_path / "delta").stat().st_size * 20 < weights.nbytes
    assert load_file(tmp_path / "a.safetensors")["w"].tobytes() == stepped.tobytes()


def test_the_first_page_has_the_line_that_was_built_with():
    lines = block("bindings/rust/libst/README.md", "toml").splitlines()
    assert any(line.startswith("libst = ") and f"`{line}`" in (ROOT / "README.md").read_text() for line in lines)


def test_libst_is_inside_and_shows_nothing(program):
    program = program.with_name("train")
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", program))
    assert needed and not [name for name in needed if re.search(r"libst\.|simdjson|xxhash|zstd", name)], needed
    assert not re.search(r" (st_\w+|.*simdjson.*|.*ZSTD.*)$", run("nm", "-DC", "--defined-only", program), re.M)
    names = run("nm", "-C", "--defined-only", program)
    assert "simdjson::" not in names, "another simdjson would be taken for this one"
    of_zstd = set(re.findall(r" [TDBRtdbr] (\w*(?:ZSTD|HUF|FSE|HIST|POOL)_\w+)$", names, re.M))
    assert "libst_ZSTD_compress2" in of_zstd
    assert not [name for name in of_zstd if not name.startswith("libst_")], "another zstd would be taken for this one"


def test_without_the_feature_an_installed_libst_is_wanted(unpacked, environment):
    manifest = block("bindings/rust/libst/README.md", "toml").replace(" }", ", default-features = false }", 1)
    folder = project(unpacked / "finds", manifest)
    done = subprocess.run(
        ["cargo", "build", "--offline", "--quiet"], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode and "libst-sys did not find libst.so.2" in done.stderr, done.stderr


@pytest.mark.parametrize("folder", ["core/remote", "core/remote/credentials"])
def test_what_reads_urls_compiles_in_one_file(unpacked, tmp_path, folder):
    """As the crate puts it together: a name of one source must not hide what another means."""
    if subprocess.run(["pkg-config", "--exists", *FOR_URLS]).returncode:
        pytest.skip("libcurl, OpenSSL or pugixml is missing")
    (bundled,) = unpacked.glob("libst-sys-*/bundled")
    together = tmp_path / "together.cpp"
    together.write_text("".join(f'#include "{source}"\n' for source in sorted((bundled / folder).glob("*.cpp"))))
    folders = [f"-I{bundled / part}" for part in ("core", "capi", "include", "inside")]
    folders += run("pkg-config", "--cflags", *FOR_URLS).split()
    run(os.environ.get("DIST_CXX", "c++"), "-std=c++20", "-fsyntax-only", "-DST_REMOTE_INSIDE", *folders, together)


LIST = """
fn main() -> libst::Result<()> {
    let url = std::env::args().nth(1).unwrap();
    for tensor in libst::File::open(url)?.tensors()? {
        println!("{} {:?}", tensor.name(), tensor.shape());
    }
    Ok(())
}
"""


@long
def test_with_the_feature_remote_a_program_reads_urls(unpacked, environment, tmp_path):
    if subprocess.run(["pkg-config", "--exists", *FOR_URLS]).returncode:
        pytest.skip("libcurl, OpenSSL or pugixml is missing")
    manifest = block("bindings/rust/libst/README.md", "toml").replace(" }", ', features = ["remote"] }', 1)
    folder = project(unpacked / "reads", manifest)
    (folder / "src" / "main.rs").write_text(LIST)
    environment = {name: value for name, value in environment.items() if name != "PKG_CONFIG_LIBDIR"}
    run("cargo", "build", "--offline", "--quiet", "--bin", "program", cwd=folder, env=environment)
    save_file({"w": np.ones((2, 3), np.float32)}, tmp_path / "model.safetensors")
    with web_server(tmp_path) as url:
        assert run(folder / "target/debug/program", f"{url}/model.safetensors", env={}) == "w [2, 3]\n"


def test_the_crate_carries_sources_licenses_and_no_more(unpacked):
    (sys_crate,) = unpacked.glob("libst-sys-*")
    bundled = sys_crate / "bundled"
    carried = {str(path.relative_to(bundled)) for path in bundled.rglob("*") if path.is_file()}
    of_zstd = {name for name in carried if name.startswith("inside/zstd/")}
    assert {name.removeprefix("inside/zstd/") for name in of_zstd if not name.endswith(".h")} == sources_of_zstd()
    of_tree = {
        str(path.relative_to(ROOT))
        for room in ("core", "capi") for path in (ROOT / room).rglob("*.[ch]*")
        if path.suffix in (".cpp", ".h") and not {"subprojects", "examples", "include"} & set(path.parts)
    }  # fmt: skip
    assert carried - of_zstd == of_tree | {
        "LICENSE", "NOTICES", "include/st/st.h",
        "inside/simdjson.h", "inside/simdjson.cpp", "inside/xxhash.h", "inside/tl/expected.hpp",
    }  # fmt: skip
    assert made("libst-sys-*.crate").stat().st_size < 2 << 20


def test_a_clone_publishes_nothing(unpacked):
    """Its libst-sys would have no sources. Those of the crates that are packed have, and may go."""
    for crate in ("libst-sys", "libst"):
        command = ["cargo", "publish", "--dry-run", "--no-verify", "--allow-dirty", "--offline", "-p", crate]
        done = subprocess.run(command, cwd=ROOT / "bindings/rust", capture_output=True, text=True)
        assert done.returncode and f"`{crate}` cannot be published" in done.stderr, done.stderr
        (manifest,) = unpacked.glob(f"{crate}-[0-9]*/Cargo.toml")
        assert "publish = false" not in manifest.read_text()


def test_the_registry_would_take_them():
    """A dry run: the registry is asked what a publication asks it, and told nothing."""
    stage = ROOT / "build" / "dist" / "crates"
    env = os.environ | {"CARGO_TARGET_DIR": str(ROOT / "build/dist/cargo")}
    said = run(
        "cargo", "publish", "--workspace", "--dry-run", "--no-verify", "--allow-dirty", "--locked", cwd=stage, env=env
    )
    assert said.count("aborting upload due to dry run") == 2, said
