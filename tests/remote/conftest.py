"""Servers on loopback, started once a run, on free ports: nginx (http, https, and as a Hub that redirects), versitygw,
which speaks S3, fake-gcs-server, Azurite, toxiproxy, and a server of faults. And a model on each of them."""

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import azure_upload
import libst
import numpy as np
import pytest
from fault_server import FaultServer
from s3_upload import put
from stores import KEYS, put_to_google
from token_services import TokenServices

ROOT = Path(__file__).resolve().parents[2]
RIG = Path(os.environ.get("CACHE", ROOT / "build" / "cache")) / "rig" / "bin"
STCTL = os.environ.get("STCTL", ROOT / "build" / "bindings" / "cli" / "stctl")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def listens(port: int, process: subprocess.Popen) -> None:
    while True:
        assert process.poll() is None, f"{process.args[0]} ended with {process.returncode}"
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.01)


def ends_with_us() -> None:
    """Whatever ends us; nginx then ends its workers."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


@contextmanager
def running(command: list, port: int, **options):
    """A program that listens there."""
    server = subprocess.Popen(command, preexec_fn=ends_with_us, **options)
    try:
        listens(port, server)
        yield
    finally:
        server.terminate()
        server.wait()


def program(path) -> str:
    found = shutil.which(path)
    if not found:
        pytest.skip(f"there is no {path}")
    return found


@pytest.fixture(scope="session", autouse=True)
def has_remote():
    library = os.environ.get("LIBST_LIBRARY")
    if library and not Path(library).with_name("libst-remote.so.2").exists():
        pytest.skip("libst-remote.so.2 was not built: libcurl, OpenSSL or pugixml was missing")


@pytest.fixture(scope="session")
def arrays():
    random = np.random.default_rng(21)
    return {
        "small": np.arange(10, dtype=np.int64),
        "rows": random.random((1000, 64), dtype=np.float32),
        "long": random.integers(0, 256, 20_000_003, dtype=np.uint8),  # several requests
        "empty": np.zeros((0, 3), dtype=np.float32),
    }


@pytest.fixture(scope="session")
def changed(arrays):
    """What the delta makes of the model."""
    rows = arrays["rows"].copy()
    rows[::50] += 1
    return {"small": arrays["small"] + 5, "rows": rows, "long": arrays["long"], "added": np.ones(3, dtype=np.float16)}


@pytest.fixture(scope="session")
def folder(tmp_path_factory, arrays, changed):
    """What the servers serve: a model, another of the same size, a delta and its result, shards, shards with wrong
    totals, a long header."""
    folder = tmp_path_factory.mktemp("served")
    libst.save(folder / "model.safetensors", arrays)
    other = {name: array + 1 for name, array in arrays.items()}
    libst.save(folder / "other.safetensors", other)
    libst.save(folder / "many.safetensors", {f"a.rather.long.name.of.{i}": np.full(2, i) for i in range(9000)})
    libst.save(folder / "changed.safetensors", changed)
    libst.diff(folder / "model.safetensors", folder / "changed.safetensors", folder / "delta.safetensors")
    (folder / "shards").mkdir()
    subprocess.run([STCTL, "shard", folder / "model.safetensors", folder / "shards", "--max-size", "1MB"], check=True)
    wrong = shutil.copytree(folder / "shards", folder / "wrong") / "model.safetensors.index.json"
    index = json.loads(wrong.read_text())
    index["metadata"] |= {"total_size": 1, "total_parameters": "many"}
    wrong.write_text(json.dumps(index))
    (folder / "plain").mkdir()
    shutil.copy(folder / "model.safetensors", folder / "plain")
    (folder / "broken.safetensors").write_bytes(b"\xff" * 64)
    (folder / "empty.safetensors").write_bytes(b"")
    return folder


@pytest.fixture(scope="session")
def nginx(tmp_path_factory, folder):
    """Ports: http, https, hub. `certificate` is what the https one has."""
    place = tmp_path_factory.mktemp("nginx")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
        + ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", place / "key", "-out", place / "certificate"],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    http, https, hub, cdn = (free_port() for _ in range(4))
    paths = "".join(
        f"{name}_temp_path {place}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (place / "users").write_text("me:{PLAIN}hidden@\n")
    (place / "users").chmod(0o644)
    (place / "conf").write_text(f"""
daemon off; worker_processes 1; pid {place}/pid; error_log {place}/error; user {os.environ.get("USER", "root")};
events {{}}
http {{
  log_format told '$server_port $request_uri $http_range $http_authorization $bytes_sent';
  access_log {place}/access told; sendfile on; {paths}
  server {{ listen 127.0.0.1:{http}; root {folder};
    location /gzip/ {{ alias {folder}/; gzip on; gzip_types *; add_header Content-Encoding gzip; }}
    location ~ ^/owner/model/resolve/main/(.*) {{ alias {folder}/$1; }}
    location /whole/ {{ alias {folder}/; max_ranges 0; }}
    location /guarded/ {{ if ($arg_sig != "hidden") {{ return 403; }} alias {folder}/; }}
    location ~ ^/versions/(.*-of-.*)$ {{
      if ($arg_versionId) {{ return 404; }} if ($arg_sig = "") {{ return 403; }} alias {folder}/$1; }}
    location /versions/ {{ alias {folder}/; }}
    location /silent/ {{ alias {folder}/; error_page 404 =403 /refused; }}
    location /refused {{ return 403; }}
    location /out {{ return 302 ftp://127.0.0.1/model.safetensors; }}
    location /basic/ {{ alias {folder}/; auth_basic a; auth_basic_user_file {place}/users; }}
    location /basic-elsewhere/ {{ auth_basic a; auth_basic_user_file {place}/users;
      rewrite ^/basic-elsewhere/(.*) http://127.0.0.1:{cdn}/$1?elsewhere redirect; }}
    location /up/ {{ rewrite ^/up/(.*) https://127.0.0.1:{https}/$1 redirect; }}
    location /private/ {{ alias {folder}/; auth_basic a; auth_basic_user_file /dev/null; }}
    location /round {{ return 302 /round; }} }}
  server {{ listen 127.0.0.1:{https} ssl; ssl_certificate {place}/certificate; ssl_certificate_key {place}/key;
    root {folder}; location /down {{ return 302 http://127.0.0.1:{http}/model.safetensors; }} }}
  server {{ listen 127.0.0.1:{hub};
    location ~ ^/owner/model/resolve/main/(.*) {{ return 302 http://127.0.0.1:{cdn}/$1?signature=hidden; }} }}
  server {{ listen 127.0.0.1:{cdn}; root {folder}; }}
}}""")
    with running([program("nginx"), "-c", place / "conf", "-e", place / "error", "-p", place], cdn):
        yield type(
            "Nginx",
            (),
            {
                "http": f"http://127.0.0.1:{http}",
                "https": f"https://127.0.0.1:{https}",
                "hub": f"http://127.0.0.1:{hub}",
                "certificate": str(place / "certificate"),
                "key": str(place / "key"),
                "log": place / "access",
                "cdn": str(cdn),
                "hub_port": str(hub),
            },
        )


@pytest.fixture(scope="session")
def gateway_disk(tmp_path_factory):
    """Where the store that speaks S3 keeps what it has: root / BUCKET / KEY."""
    place = tmp_path_factory.mktemp("gateway")
    for name in ("root", "side", "versions"):
        (place / name).mkdir()
    return place


@pytest.fixture(scope="session")
def gateway(gateway_disk, folder):
    """The URL of a store that speaks S3, with all files in the bucket "models"."""
    place = gateway_disk
    port = free_port()
    command = [program(RIG / "versitygw"), "--port", f"127.0.0.1:{port}", "--quiet", "--keep-alive"]
    command += ["--access", KEYS[0], "--secret", KEYS[1], "posix", "--sidecar", place / "side"]
    command += ["--versioning-dir", place / "versions", place / "root"]
    with running(command, port, stdout=subprocess.DEVNULL):
        endpoint = f"http://127.0.0.1:{port}"
        for file in sorted(folder.rglob("*.*")):
            put(endpoint, "models", str(file.relative_to(folder)), file.read_bytes(), KEYS)
        put(endpoint, "models", "odd name/ä+=&~%20#?(1).safetensors", (folder / "many.safetensors").read_bytes(), KEYS)
        yield endpoint


@pytest.fixture
def s3(gateway, monkeypatch):
    """The environment of a user of that store."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", gateway)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS[1])
    return gateway


@pytest.fixture(scope="session")
def google_store(folder):
    """The URL of a store that speaks Google's JSON API, with all files in the bucket "models"."""
    port = free_port()
    command = [program(RIG / "fake-gcs-server"), "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    with running([*command, "-scheme", "http", "-log-level", "error"], port):
        endpoint = f"http://127.0.0.1:{port}"
        ask = urllib.request.Request(f"{endpoint}/storage/v1/b", b'{"name": "models"}', method="POST")
        urllib.request.urlopen(ask).close()
        for file in sorted(folder.rglob("*.*")):
            put_to_google(endpoint, str(file.relative_to(folder)), file.read_bytes())
        yield endpoint


@pytest.fixture(scope="session")
def azurite(tmp_path_factory, folder):
    """The connection string of a store that speaks Azure's API, with all files in the container "models"."""
    place = tmp_path_factory.mktemp("azurite")
    port = free_port()
    command = [program(RIG / "node"), RIG / "azurite.js", "--blobHost", "127.0.0.1", "--blobPort", str(port)]
    command += ["--inMemoryPersistence", "--silent", "--disableTelemetry"]
    with running(command, port, cwd=place, stdout=subprocess.DEVNULL):
        endpoint = f"http://127.0.0.1:{port}/{azure_upload.ACCOUNT}"
        azure_upload.put(endpoint, "models?restype=container", b"")
        for file in sorted(folder.rglob("*.*")):
            azure_upload.put(endpoint, f"models/{file.relative_to(folder)}", file.read_bytes())
        yield f"AccountName={azure_upload.ACCOUNT};AccountKey={azure_upload.KEY};BlobEndpoint={endpoint};"


@pytest.fixture
def tokens():
    with TokenServices(KEYS) as services:
        yield services


@pytest.fixture(params=["http", "https", "hub", "s3", "gs", "az"])
def base(request, nginx, monkeypatch):
    """The URL of the folder on each kind of server."""
    if request.param == "https":
        monkeypatch.setenv("SSL_CERT_FILE", nginx.certificate)
        return nginx.https
    if request.param == "hub":
        monkeypatch.setenv("HF_ENDPOINT", nginx.hub)
        monkeypatch.setenv("HF_TOKEN", "hf_hidden")
        return "hf://owner/model"
    if request.param == "s3":
        request.getfixturevalue("s3")
        return "s3://models"
    if request.param == "gs":
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", request.getfixturevalue("google_store"))
        return "gs://models"
    if request.param == "az":
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", request.getfixturevalue("azurite"))
        return "az://models"
    return nginx.http


@pytest.fixture
def toxiproxy():
    """A function: (port to, toxics) -> port. Each connection through it has them."""
    port = free_port()
    command = [program(RIG / "toxiproxy"), "-host", "127.0.0.1", "-port", str(port)]

    def ask(path, body):
        import json

        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), method="POST")
        urllib.request.urlopen(request).close()

    def through(to, *toxics):
        listen = free_port()
        name = f"p{listen}"
        ask("/proxies", {"name": name, "listen": f"127.0.0.1:{listen}", "upstream": f"127.0.0.1:{to}", "enabled": True})
        for kind, attributes in toxics:
            ask(f"/proxies/{name}/toxics", {"type": kind, "stream": "downstream", "attributes": attributes})
        return listen

    with running(command, port, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        yield through


@pytest.fixture
def faults(folder):
    with FaultServer(
        (folder / "model.safetensors").read_bytes(), (folder / "other.safetensors").read_bytes()
    ) as server:
        yield server


@pytest.fixture(autouse=True)
def nothing_of_the_user(monkeypatch, tmp_path):
    for name in list(os.environ):
        if (
            name.startswith(("AWS_", "AZURE_", "GCE_", "GOOGLE_", "HF_", "IDENTITY_", "ST_REMOTE_"))
            or name
            in ("CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "STORAGE_EMULATOR_HOST")
            or name == "CLOUDSDK_CONFIG"
            or name.lower().endswith("_proxy")
        ):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    # Services of a cloud's machine, which this one may be.
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://127.0.0.1:1")


def stctl(*arguments):
    return subprocess.run([STCTL, *arguments], capture_output=True, text=True)


@contextmanager
def fails(*statuses, match=None):
    with pytest.raises(libst.Error, match=match) as told:
        yield told
    assert told.value.status in statuses, told.value
    no_secret_in(str(told.value))


def no_secret_in(text):
    for secret in (KEYS[1], "another-secret", "a-token", "hf_a_token", "hidden", azure_upload.KEY, "sig="):
        assert secret not in text


def check(read, arrays):
    assert set(read) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)


class Stopped(Exception):
    pass


def signal_us():
    os.kill(os.getpid(), signal.SIGUSR1)


@contextmanager
def stopper(is_time, stop=signal_us):
    """A thread does `stop` once it is time, unless the block has ended. The signal to this process raises Stopped."""
    over = threading.Event()

    def handler(*_):
        raise Stopped

    def wait():
        while not over.wait(0.01):
            if is_time():
                return stop()

    as_it_was = signal.signal(signal.SIGUSR1, handler)
    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGUSR1, as_it_was)
