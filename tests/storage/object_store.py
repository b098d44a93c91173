"""An object store that is some milliseconds away, and the real gcsfuse over it.

fake-gcs-server holds the objects in memory, toxiproxy adds the latency, both on loopback and on ports of
their own; tests/storage/install.sh builds all three. Every process dies with us, and a mount ends with its
process: nothing stays behind.
"""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import urllib.parse
from pathlib import Path

import disk
import st_abi

PROGRAMS = Path(os.environ.get("LIBST_RIG") or st_abi.ROOT / "build" / "cache" / "rig" / "bin")
BUCKET = "models"

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def program(name):
    """Where it is: built by install.sh, or else installed on this machine. None if neither."""
    built = PROGRAMS / name
    return built if built.exists() else shutil.which(name)


def lacking(*names):
    """What to install; empty if nothing."""
    missing = [name for name in names if not program(name)]
    return f"needs {', '.join(missing)}: bash tests/storage/install.sh" if missing else ""


def start(arguments, log, environment=None):
    """A process that is killed when we are; what it says goes to the log."""
    with open(log, "ab") as output:
        return subprocess.Popen(
            list(map(str, arguments)),
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=lambda: _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
        )


def stop(process):
    process.terminate()
    try:
        process.wait(disk.LONGEST_WAIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _request(address, method, path, body=b"", kind="application/json"):
    connection = http.client.HTTPConnection(address, timeout=disk.LONGEST_WAIT)
    try:
        connection.request(method, path, body, {"Content-Type": kind})
        response = connection.getresponse()
        said = response.read()
    finally:
        connection.close()
    if response.status // 100 != 2:
        raise OSError(f"{method} http://{address}{path}: {response.status} {said[:200]!r}")
    return json.loads(said) if said else None


def _serve(command, address, path, log):
    """Start a server; return it when it answers."""
    process = start(command, log)

    def answers():
        if process.poll() is not None:
            raise RuntimeError(f"{command[0]} ended at once: {Path(log).read_text()[-500:]}")
        try:
            _request(address, "GET", path)
        except OSError:
            return False
        return True

    try:
        disk.wait_until(answers, f"{command[0]} to answer")
    except BaseException:
        stop(process)
        raise
    return process


class ObjectStore:
    """`address` is that of the server; `delayed(ms)` that of the same server further away."""

    def __init__(self, folder):
        self._log = Path(folder) / "object_store.log"
        self.address = f"127.0.0.1:{_free_port()}"
        self._proxies = f"127.0.0.1:{_free_port()}"
        self._processes = []
        try:
            self._start("fake-gcs-server", ["-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-log-level",
                        "error", "-port", self.address.split(":")[1], "-public-host", "127.0.0.1"], self.address, "/storage/v1/b")
            self._start("toxiproxy", ["-host", "127.0.0.1", "-port", self._proxies.split(":")[1]], self._proxies, "/proxies")
            _request(self.address, "POST", "/storage/v1/b?project=test", json.dumps({"name": BUCKET}))
        except BaseException:
            self.close()
            raise

    def _start(self, name, arguments, address, path):
        self._processes.append(_serve([program(name), *arguments], address, path, self._log))

    def put(self, name, content):
        query = urllib.parse.urlencode({"uploadType": "media", "name": name})
        path = f"/upload/storage/v1/b/{BUCKET}/o?{query}"
        _request(self.address, "POST", path, content, "application/octet-stream")

    def delayed(self, milliseconds):
        """The address at which every answer comes this much later; bandwidth is not limited."""
        if not milliseconds:
            return self.address
        name = f"{milliseconds}ms"
        known = _request(self._proxies, "GET", "/proxies")
        if name not in known:
            proxy = {"name": name, "listen": "127.0.0.1:0", "upstream": self.address, "enabled": True}
            known[name] = _request(self._proxies, "POST", "/proxies", json.dumps(proxy))
            toxic = {"type": "latency", "stream": "downstream", "attributes": {"latency": milliseconds}}
            _request(self._proxies, "POST", f"/proxies/{name}/toxics", json.dumps(toxic))
        return known[name]["listen"]

    def close(self):
        for process in reversed(self._processes):
            stop(process)
        self._processes.clear()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Gcsfuse:
    """The bucket, mounted by gcsfuse with these options; each mount begins with an empty cache."""

    def __init__(self, store, mountpoint, *options, latency=0):
        self.mountpoint = Path(mountpoint)
        self.mountpoint.mkdir(exist_ok=True)
        self._log = self.mountpoint.with_suffix(".log")
        address = store.delayed(latency)
        self._environment = {"STORAGE_EMULATOR_HOST": f"http://{address}"}
        self._command = [
            program("gcsfuse"), "--foreground", "--enable-hns=false", "--anonymous-access", "--implicit-dirs",
            "--custom-endpoint", f"http://{address}/storage/v1/", *options, BUCKET, self.mountpoint,
        ]  # fmt: skip
        self._process = None
        self.mount()

    def mount(self):
        self._process = start(self._command, self._log, self._environment)
        try:
            disk.wait_for_mount(self.mountpoint, self._process, self._log)
        except BaseException:
            self.close()
            raise

    def remount(self):
        """Forget all that is cached."""
        self.umount()
        self.mount()

    def umount(self):
        disk.umount(self.mountpoint)
        self._process.wait(disk.LONGEST_WAIT)

    def close(self):
        if self._process is None:
            return
        disk.detach(self.mountpoint)
        stop(self._process)
        self._process = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
