"""What bash tests/dist.sh has made, and bare systems to try it on."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import threading
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("BUILD", ROOT / "build"))
CACHE = ROOT / "build" / "cache"  # downloads

OF_MACOS = ["macosx_11_0_arm64", "macosx_11_0_x86_64"]

long = pytest.mark.skipif(os.environ.get("ST_DIST") != "all", reason="takes minutes: bash tests/run.sh dist-all")


def run(*command: object, **options) -> str:
    done = subprocess.run(
        [str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    assert done.returncode == 0, f"{command} answered {done.returncode}:\n{done.stdout}"
    return done.stdout


def block(page: str, language: str, number: int = 0) -> str:
    """A code block of a page, counted among those of its language."""
    return re.findall(rf"^```{language}\b.*\n((?:.*\n)*?)```$", (ROOT / page).read_text(), re.M)[number]


@contextmanager
def web_server(folder: Path, certificate: Path | None = None):
    """The URL of a server on loopback; by https with a certificate and its key in one file.

    It knows no ranges: a small file comes whole with the first answer.
    """

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http{'s' if certificate else ''}://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def sources_of_zstd() -> set[str]:
    """Those that the wrap compiles: what is carried beside them is headers."""
    wrap = (ROOT / "core/subprojects/packagefiles/zstd/meson.build").read_text()
    return set(re.findall(r"'lib/(.*\.c)'", wrap))


def made(name: str) -> Path:
    found = sorted((ROOT / "dist").glob(name))
    if not found:
        pytest.skip(f"dist/ has no {name}: bash tests/dist.sh makes it")
    assert len(found) == 1, found
    return found[0]


def wheel(platform: str) -> Path:
    return made(f"libst-*-py3-none-{platform}.whl")


def source_package() -> Path:
    return made("libst-[0-9]*.tar.gz")


def library(platform: str, folder: Path) -> Path:
    run("python3", "-m", "zipfile", "-e", wheel(platform), folder)
    return folder / "libst" / "libst.so.2"
