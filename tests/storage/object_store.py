"""An object store that is some milliseconds away, and the real gcsfuse over it.

fake-gcs-server holds the objects in memory, toxiproxy adds the latency, both on loopback and on ports of
their own; tests/storage/install.sh builds all three. Every process dies with us, and a mount ends with its
process: nothing stays behind.
"""

from __future__ import annotations

import http.client
import json
import socket
import urllib.parse
from pathlib import Path

import disk
from clients import Client, program, start, stop

BUCKET = "models"


def free_port():
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
        self.address = f"127.0.0.1:{free_port()}"
        self._proxies = f"127.0.0.1:{free_port()}"
        self._processes = []
        try:
            self._start("fake-gcs-server", self.address, "/storage/v1/b", "-backend", "memory", "-scheme", "http",
                        "-log-level", "error", "-public-host", "127.0.0.1")  # fmt: skip
            self._start("toxiproxy", self._proxies, "/proxies")
            _request(self.address, "POST", "/storage/v1/b?project=test", json.dumps({"name": BUCKET}))
        except BaseException:
            self.close()
            raise

    def _start(self, name, address, path, *options):
        host, port = address.split(":")
        command = [program(name), "-host", host, "-port", port, *options]
        self._processes.append(_serve(command, address, path, self._log))

    def put(self, name, content):
        query = urllib.parse.urlencode({"uploadType": "media", "name": name})
        path = f"/upload/storage/v1/b/{BUCKET}/o?{query}"
        _request(self.address, "POST", path, content, "application/octet-stream")

    def delayed(self, milliseconds, to=None):
        """The address at which answers of this server, or another, come this much later. Bandwidth has no limit."""
        to = to or self.address
        if not milliseconds:
            return to
        name = f"{milliseconds}ms-to-{to.rpartition(':')[2]}"
        known = _request(self._proxies, "GET", "/proxies")
        if name not in known:
            proxy = {"name": name, "listen": "127.0.0.1:0", "upstream": to, "enabled": True}
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


class Gcsfuse(Client):
    """The bucket, mounted by gcsfuse with these options."""

    def __init__(self, store, mountpoint, *options, latency=0):
        address = store.delayed(latency)
        command = [
            program("gcsfuse"), "--foreground", "--enable-hns=false", "--anonymous-access", "--implicit-dirs",
            "--custom-endpoint", f"http://{address}/storage/v1/", *options, BUCKET, mountpoint,
        ]  # fmt: skip
        super().__init__(mountpoint, command, {"STORAGE_EMULATOR_HOST": f"http://{address}"})
