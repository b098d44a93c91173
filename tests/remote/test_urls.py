"""Models behind URLs, on real servers on loopback, through every door."""

import contextlib
import ctypes
import gc
import json
import os
import platform
import re
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import types
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random

import libst
import numpy as np
import pytest
import s3_upload
from conftest import KEYS, ROOT, STCTL, Stopped, check, fails, signal_us, stctl, stopper
from fault_server import FaultServer, crc32c
from gathering_server import GatheringServer
from libst import Status


def test_reads_as_of_a_file(base, arrays):
    with libst.open(f"{base}/model.safetensors") as f:
        check({name: f[name] for name in f}, arrays)
        np.testing.assert_array_equal(f.slice("rows")[3:999:7], arrays["rows"][3:999:7])
        np.testing.assert_array_equal(f.read("long"), arrays["long"])
        assert not f["long"].flags.writeable
    check(libst.load(f"{base}/model.safetensors"), arrays)


def test_stctl_says_how_a_url_is_reached(base):
    told = stctl("io", f"{base}/model.safetensors").stdout
    assert "Storage: a server that its URL names." in told
    assert "Other hosts: read only, of the version that was opened" in told
    assert "answers begin after" in told and "16 requests at once, at most 64, of 8 MiB" in told


def test_reads_shards_by_their_index(base, arrays):
    check(libst.load(f"{base}/shards/model.safetensors.index.json"), arrays)
    with libst.open(f"{base}/shards/") as f:
        np.testing.assert_array_equal(f["rows"], arrays["rows"])


def test_shards_are_those_that_were_there_when_the_index_was_opened(tmp_path):
    """By the times that the server says."""

    class Handler(SimpleHTTPRequestHandler):
        now = "Fri, 24 May 2013 12:00:00 GMT"

        def __init__(self, *arguments):
            super().__init__(*arguments, directory=tmp_path)

        def log_message(self, *_):
            pass

        def date_time_string(self, timestamp=None):
            return self.now if timestamp is None else super().date_time_string(timestamp)

    def put(name, at):
        libst.save(tmp_path / f"{name}.safetensors", {name: np.full(3, at)})
        os.utime(tmp_path / f"{name}.safetensors", (at, at))

    noon = 1369396800
    for name in "abc":
        put(name, noon - 60)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {name: f"{name}.safetensors" for name in "abc"}}))
    os.utime(index, (noon - 60, noon - 60))
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,))
        serving.start()
        try:
            with libst.open(f"http://127.0.0.1:{server.server_port}/{index.name}") as f:
                assert f.read("a")[0] == noon - 60
                for name in "ac":
                    put(name, noon + 60)
                Handler.now = "Fri, 24 May 2013 12:02:00 GMT"
                assert f.read("b")[0] == noon - 60
                with fails(
                    Status.FILE_CHANGED, match=r"c\.safetensors': it was replaced after the checkpoint was opened"
                ):
                    f.read("c")
            check(
                libst.load(f"http://127.0.0.1:{server.server_port}/"),
                {n: np.full(3, noon + 60 - 120 * (n == "b")) for n in "abc"},
            )
        finally:
            server.shutdown()
            serving.join()


def test_a_folder_without_an_index_has_a_model(base, arrays):
    check(libst.load(f"{base}/plain/"), arrays)


def test_a_folder_of_a_store_that_does_not_say_what_is_missing(nginx, arrays):
    """S3 answers 403 for an object that is not there, where one may not list the bucket."""
    check(libst.load(f"{nginx.http}/silent/plain/"), arrays)
    with fails(Status.PERMISSION, match=r"/silent/nowhere/model\.safetensors\.index\.json': the server answered 403"):
        libst.open(f"{nginx.http}/silent/nowhere/")


@pytest.mark.parametrize("path", ["shards/model.safetensors.index.json", "shards/", "plain/"])
def test_a_query_lets_in_to_all_of_a_folder(nginx, arrays, path):
    url = f"{nginx.http}/guarded/{path}?sig=hidden#"
    check(libst.load(url), arrays)
    with libst.open(url) as f:
        assert "hidden" not in repr(f)
    with fails(Status.INVALID_ARGUMENT, match="is closed"):
        f.read("small")
    for command in (["info"], ["ls", "--json"], ["view"], ["verify"], ["verify", "--json"], ["journal"]):
        told = stctl(*command, url)
        assert "/guarded/" in told.stdout + told.stderr
        assert "hidden" not in told.stdout + told.stderr
    with fails(Status.PERMISSION):
        libst.open(f"{nginx.http}/guarded/{path}")
    told = stctl("ls", "--json", "HTTP" + url.removeprefix("http"))
    assert not told.returncode and "hidden" not in told.stdout


def test_a_version_of_an_index_is_none_of_its_shards(nginx, arrays):
    check(
        libst.load(f"{nginx.http}/versions/shards/model.safetensors.index.json?versionId=1&sig=hidden&snapshot=2"),
        arrays,
    )


def test_a_header_longer_than_the_first_answer(base):
    with libst.open(f"{base}/many.safetensors") as f:
        assert len(f) == 9000
        np.testing.assert_array_equal(f["a.rather.long.name.of.8999"], np.full(2, 8999))


def test_stctl_reads_verifies_and_joins(base, folder, tmp_path):
    listed = stctl("ls", f"{base}/model.safetensors")
    assert listed.stdout == stctl("ls", folder / "model.safetensors").stdout, listed.stderr
    assert stctl("verify", f"{base}/model.safetensors", f"{base}/shards/model.safetensors.index.json").returncode == 0
    joined = stctl("join", f"{base}/shards/", tmp_path / "joined.safetensors")
    assert joined.returncode == 0, joined.stderr
    check(libst.load(tmp_path / "joined.safetensors"), libst.load(folder / "model.safetensors"))


def test_verify_holds_the_totals_of_an_index_against_its_shards(base, folder):
    def warnings(place):
        found = stctl("verify", f"{place}/wrong/model.safetensors.index.json")
        assert found.returncode == 0, found.stderr
        return re.findall("warning: the index says .*", found.stdout + found.stderr)

    assert len(warnings(folder)) == 2
    assert warnings(base) == warnings(folder)


def test_what_is_broken_is_said_as_of_a_file(base):
    with fails(Status.HEADER_TOO_LARGE):
        libst.open(f"{base}/broken.safetensors")
    with fails(Status.HEADER_TOO_SMALL):
        libst.open(f"{base}/empty.safetensors")
    with fails(Status.NO_FILE, match="404"):
        libst.open(f"{base}/nothing.safetensors")
    assert stctl("verify", f"{base}/broken.safetensors").returncode != 0


def test_keys_are_any_text(s3):
    with libst.open("s3://models/odd name/ä+=&~%20#?(1).safetensors") as f:
        assert len(f) == 9000


def test_versions_of_an_object_of_s3(s3, arrays, folder):
    s3_upload.keep_versions(s3, "kept", KEYS)
    first = s3_upload.put(s3, "kept", "model.safetensors", (folder / "model.safetensors").read_bytes(), KEYS)
    second = s3_upload.put(s3, "kept", "model.safetensors", (folder / "other.safetensors").read_bytes(), KEYS)
    check(libst.load(f"s3://kept/model.safetensors?versionId={first}"), arrays)
    for url in ("s3://kept/model.safetensors", f"s3a://kept/model.safetensors?versionId={second}"):
        assert libst.load(url)["small"].tolist() == (arrays["small"] + 1).tolist()
    with fails(Status.IO, Status.NO_FILE, match=r"'s3://kept/model\.safetensors': the server answered 40\d"):
        libst.open("s3://kept/model.safetensors?versionId=none")


def test_nothing_is_written(s3, folder, tmp_path):
    with fails(Status.UNSUPPORTED):
        libst.open("s3://models/model.safetensors", "r+")
    with fails(Status.UNSUPPORTED):
        libst.save("s3://models/new.safetensors", {"a": np.zeros(1)})
    with fails(Status.UNSUPPORTED):
        libst.recover("s3://models/model.safetensors")


def test_who_may_not_is_told_how_they_asked(gateway, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", gateway)
    with fails(Status.PERMISSION, match=r"403 AccessDenied.*request id \w+.*anonymously"):
        libst.open("s3://models/model.safetensors")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS[0])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")
    with fails(Status.PERMISSION, match="403 SignatureDoesNotMatch.*keys of the environment"):
        libst.open("s3://models/model.safetensors")


def test_no_bucket_is_said(s3):
    with fails(Status.NO_FILE, match="NoSuchBucket"):
        libst.open("s3://no-such-bucket/a")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/whole/model.safetensors", "no ranges"),
        ("/gzip/model.safetensors", "encoding 'gzip'"),
        ("/out", "only to https"),
        ("/round", "redirect"),
    ],
)
def test_servers_that_cannot_be_read_safely(nginx, path, message):
    with fails(Status.UNSUPPORTED, Status.IO, match=message):
        libst.open(nginx.http + path)


def test_a_small_file_of_a_server_without_ranges(nginx):
    with fails(Status.HEADER_TOO_LARGE):  # it was read whole
        libst.open(f"{nginx.http}/whole/broken.safetensors")


def test_a_certificate_that_does_not_verify(nginx):
    with fails(Status.IO, match="certificate"):
        libst.open(f"{nginx.https}/model.safetensors")


def test_certificates_of_a_folder(nginx, arrays, tmp_path, monkeypatch):
    shutil.copy(nginx.certificate, tmp_path / "a.pem")
    subprocess.run(["openssl", "rehash", tmp_path], check=True)
    monkeypatch.setenv("SSL_CERT_DIR", f"/nowhere:{tmp_path}")
    check(libst.load(f"{nginx.https}/model.safetensors"), arrays)


def test_certificates_for_aws_of_a_folder(nginx, arrays, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", nginx.https)
    monkeypatch.setenv("AWS_NO_SIGN_REQUEST", "true")
    with fails(Status.IO, match="certificate"):
        libst.load("s3://plain/model.safetensors")
    shutil.copy(nginx.certificate, tmp_path / "a.pem")
    subprocess.run(["openssl", "rehash", tmp_path], check=True)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path))
    check(libst.load("s3://plain/model.safetensors"), arrays)


@pytest.mark.parametrize("url", ["s3://bucket/a", "hf://owner/model/a", "https://me:hidden@host/a?sig=hidden"])
def test_a_url_that_became_a_path_is_told(url):
    shown = url.replace("me:hidden@", "").split("?")[0]
    for given in (Path(url), str(Path(url))):
        with fails(Status.NO_FILE, match=f"'{shown}' becomes.*give the URL as a text"):
            libst.open(given)
        with fails(Status.NO_FILE, match=f"'{shown}' becomes"):
            libst.load(given)
    with fails(Status.NO_FILE, match="cannot open 'other:/bucket/a'"):
        libst.open("other:/bucket/a")


def test_https_does_not_become_http(nginx, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", nginx.certificate)
    with fails(Status.UNSUPPORTED, match="only to https"):
        libst.open(f"{nginx.https}/down")


def test_a_token_stays_with_the_hub(nginx, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", nginx.hub)
    monkeypatch.setenv("HF_TOKEN", "hf_a_token")
    libst.load("hf://owner/model/model.safetensors")
    lines = nginx.log.read_text().splitlines()
    assert [line for line in lines if "hf_a_token" in line]
    assert all(line.startswith(nginx.hub_port + " ") for line in lines if "hf_a_token" in line)


@pytest.mark.parametrize(
    "url",
    ["https://me:hidden@host/a?sig=b", "https://hidden@host/a", "https://:hidden@host/a", "s3://me:hidden@bucket/a"],
)
def test_what_a_url_says_of_a_user_is_in_no_message(url, monkeypatch):
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")  # so that nobody is asked
    monkeypatch.setenv("ST_REMOTE_DEADLINE_SECONDS", "1")
    shown = url.split("/")[0] + "//" + url.split("@")[1].split("?")[0]
    save = partial(libst.save, tensors={"a": np.ones(1)})
    for call in (libst.open, partial(libst.open, mode="r+"), libst.load, save):
        with fails(Status.UNSUPPORTED, Status.INVALID_ARGUMENT, Status.IO, match=re.escape(f"'{shown}'")):
            call(url)
    for arguments in (["ls"], ["verify"], ["recover"], ["rm", "a"]):
        told = stctl(arguments[0], url, *arguments[1:])
        assert told.returncode and shown in told.stderr
        assert "hidden" not in told.stderr + told.stdout


@pytest.mark.parametrize(
    "url, lacks",
    [("s3://", "bucket"), ("gs:///a", "bucket"), ("az://", "container"), ("s3://bucket", "object"), ("hf://", "file")],
)
def test_a_url_that_is_cut_short_says_what_it_lacks(url, lacks):
    with fails(Status.INVALID_ARGUMENT, match=re.escape(f"'{url}' names no {lacks}; a URL is {url[:5]}")):
        libst.open(url)


def _table_of_shown_urls():
    text = (ROOT / "tests" / "unit" / "base" / "shown_urls.inc").read_text()
    return re.findall(r'^\{"([^"]+)", "([^"]+)"\},$', text, re.MULTILINE)


def test_each_program_shows_the_same_of_a_url(monkeypatch):
    from libst._url import shown as shown_by_python

    for url, shown in (cases := _table_of_shown_urls()):
        assert shown_by_python(url) == shown
    assert len(cases) > 10
    # Each is refused before anybody is asked.
    for name in ("AWS_PROFILE", "GOOGLE_APPLICATION_CREDENTIALS", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "account")
    monkeypatch.setenv("AZURE_STORAGE_KEY", "no Base64")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:99999")
    for url, shown in cases:
        told = stctl("verify", "--json", url)
        assert json.loads(told.stdout)["files"][0]["file"] == shown, told
        assert "hidden" not in told.stdout + told.stderr


def test_a_bar_of_progress_shows_no_secret(nginx, arrays, monkeypatch):
    bars = []

    class Bar(contextlib.nullcontext):
        n = total = 0

        def __init__(self, desc, **_):
            bars.append(desc)
            super().__init__(self)

        def update(self, n):
            self.n += n

    monkeypatch.setitem(sys.modules, "tqdm", types.ModuleType("tqdm"))
    monkeypatch.setitem(sys.modules, "tqdm.auto", types.SimpleNamespace(tqdm=Bar))
    url = f"{nginx.http}/model.safetensors"
    check(libst.load(url.replace("//", "//me:hidden@") + "?sig=hidden", progress=True), arrays)
    assert bars == [url]


def test_a_user_of_a_url(nginx, arrays):
    url = nginx.http.replace("//", "//me:hidden%40@") + "/basic"
    for path in ("model.safetensors", "shards/", "shards/model.safetensors.index.json"):
        check(libst.load(f"{url}/{path}"), arrays)
        with libst.open(f"{url}/{path}") as f:
            assert "hidden" not in repr(f) + " ".join(f.shards)
        for command in (["io"], ["ls", "--json"], ["verify", "--json"]):
            told = stctl(*command, f"{url}/{path}")
            assert told.returncode == 0, told
            assert "hidden" not in told.stdout + told.stderr
    with fails(Status.NO_FILE, match="404"):
        libst.open(f"{url}/nothing")
    with fails(Status.PERMISSION, match="401; it was asked with the user of the URL$"):
        libst.open(url.replace("%40", "") + "/model.safetensors")


def test_a_user_of_a_url_goes_to_no_other_host(nginx, arrays):
    url = nginx.http.replace("//", "//me:hidden%40@")
    check(libst.load(f"{url}/basic-elsewhere/model.safetensors"), arrays)
    assert "Basic" in served(nginx, "/basic-elsewhere/model.safetensors", 1)[-1]
    assert not [line for line in served(nginx, " /model.safetensors?elsewhere", 1) if "Basic" in line]


class _Hub(SimpleHTTPRequestHandler):
    """Files of two commits, of which `main` is the last."""

    def do_GET(self):
        _, _, _, _, revision, name = self.path.split("/", 5)
        self.commit = self.server.main if revision == "main" else revision
        self.path = f"/{self.commit}/{name}"
        super().do_GET()

    def send_response(self, code, message=None):
        super().send_response(code, message)
        self.send_header("X-Repo-Commit", self.commit)

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("leads", [False, True])
def test_shards_of_the_hub_are_of_the_commit_of_their_index(tmp_path, monkeypatch, leads):
    for commit, value in (("aa", 1), ("bb", 2)):
        libst.save(tmp_path / "whole", {"a": np.full(100, value, "u1"), "b": np.full(100, value, "u1")})
        libst.reshard(tmp_path / "whole", tmp_path / commit, 100)

    class Leads(_Hub):
        def do_GET(self):
            if leads and "/resolve/main/" in self.path:
                self.commit = self.server.main
                self.send_response(302)
                self.send_header("Location", self.path.replace("/main/", f"/{self.commit}/"))
                self.send_header("Content-Length", "0")
                return self.end_headers()
            return super().do_GET()

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Leads, directory=tmp_path)) as server:
        server.main = "aa"
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        try:
            with libst.open("hf://owner/model/") as f:
                assert f.read("a")[0] == 1
                server.main = "bb"
                assert f.read("b")[0] == 1
            assert libst.load("hf://owner/model/")["b"][0] == 2
        finally:
            server.shutdown()


def test_http_may_become_https(nginx, arrays, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", nginx.certificate)
    check(libst.load(f"{nginx.http}/up/model.safetensors"), arrays)


class _Tls:
    """A server that counts who comes, and says what TLS says of them."""

    def __init__(self, certificate, key, closes=0, **settings):
        self._closes = closes  # that many connections at their begin
        self._context = None
        if certificate:
            self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._context.load_cert_chain(certificate, key)
            self._context.load_verify_locations(certificate)
            for name, value in settings.items():
                setattr(self._context, name, value)
        self.came = 0

    def __enter__(self):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._socket.getsockname()[1]}/a"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        return self

    def _serve(self):
        while True:
            asks, _ = self._socket.accept()
            with asks:
                if self._over(asks):
                    return
                self.came += 1
                if self.came <= self._closes:
                    asks.recv(1 << 16)
                    continue
                if not self._context:
                    asks.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    continue
                with self._context.wrap_socket(asks, server_side=True, do_handshake_on_connect=False) as inside:
                    with contextlib.suppress(ssl.SSLError):
                        inside.do_handshake()
                    # What it says is lost if the connection is closed while something is unread.
                    with contextlib.suppress(OSError):
                        inside.shutdown(socket.SHUT_WR)
                        while inside.recv(4096):
                            pass

    @staticmethod
    def _over(asks):
        """Nobody begins TLS so."""
        return asks.recv(1, socket.MSG_PEEK) == b"!"

    def __exit__(self, *_):
        with socket.create_connection(self._socket.getsockname()) as last:
            last.sendall(b"!")
        self._thread.join()
        self._socket.close()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"verify_mode": ssl.CERT_REQUIRED}, "certificate required"),
        ({"verify_mode": ssl.CERT_REQUIRED, "maximum_version": ssl.TLSVersion.TLSv1_2}, "handshake failure"),
        (None, "wrong version number"),
    ],
)
def test_a_refusal_of_tls_is_an_answer(nginx, monkeypatch, settings, message):
    monkeypatch.setenv("SSL_CERT_FILE", nginx.certificate)
    files = (None, None) if settings is None else (nginx.certificate, nginx.key)
    with _Tls(*files, **settings or {}) as server:
        with fails(Status.IO, match=message):
            libst.open(server.url)
        assert server.came == 1


def test_a_close_in_the_handshake_is_no_refusal(nginx, monkeypatch):
    """What libcurl says of it names the host."""
    monkeypatch.setenv("SSL_CERT_FILE", nginx.certificate)
    with _Tls(nginx.certificate, nginx.key, closes=1) as server:
        with fails(Status.IO, match="certificate"):
            libst.open(server.url.replace("127.0.0.1", "alerts.localhost"))
        assert server.came == 2


class _Relay:
    """Before a server of TLS. In the answer on the first connection the version of one record is spoiled."""

    def __init__(self, port):
        self._port = port
        self.came = 0
        self.spoiled = 0

    def __enter__(self):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"https://127.0.0.1:{self._socket.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()
        return self

    def _serve(self):
        while True:
            asks, _ = self._socket.accept()
            if asks.recv(1, socket.MSG_PEEK) == b"!":
                return asks.close()
            self.came += 1
            self._threads.append(threading.Thread(target=self._relay, args=(asks, self.came == 1)))
            self._threads[-1].start()

    def _relay(self, asks, spoils):
        with asks, socket.create_connection(("127.0.0.1", self._port)) as there, there.makefile("rb") as records:
            up = threading.Thread(target=self._copy, args=(asks, there))
            up.start()
            passed = 0
            with contextlib.suppress(OSError):
                while len(head := records.read(5)) == 5:
                    body = records.read(int.from_bytes(head[3:], "big"))
                    passed += len(body)
                    if spoils and passed > 1 << 15:
                        head = bytes([head[0], head[1] ^ 4, *head[2:]])
                        spoils = False
                        self.spoiled += 1
                    asks.sendall(head + body)
                asks.shutdown(socket.SHUT_RDWR)
            up.join()

    @staticmethod
    def _copy(asks, there):
        with contextlib.suppress(OSError):
            while data := asks.recv(1 << 16):
                there.sendall(data)
        with contextlib.suppress(OSError):
            there.shutdown(socket.SHUT_RDWR)

    def __exit__(self, *_):
        with socket.create_connection(self._socket.getsockname()) as last:
            last.sendall(b"!")
            self._threads[0].join()
        for thread in self._threads[1:]:
            thread.join()
        self._socket.close()


def test_a_spoiled_record_is_no_refusal(nginx, folder, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", nginx.certificate)
    with _Relay(int(nginx.https.rpartition(":")[2])) as relay:
        came = libst.load(f"{relay.url}/many.safetensors")
        assert relay.spoiled == 1
    check(came, libst.load(folder / "many.safetensors"))


def test_a_proxy_that_refuses_is_asked_once(nginx, monkeypatch):
    proxy = nginx.http.replace("//", "//me:hidden@")
    monkeypatch.setenv("https_proxy", proxy)
    with fails(Status.IO, match=r"CONNECT tunnel failed, response 4\d\d$"):
        libst.open("https://nowhere.invalid/a")
    for wrong in (f"{proxy}00000", "ftp://me:hidden@host"):
        monkeypatch.setenv("https_proxy", wrong)
        with fails(Status.IO, match="Unsupported proxy [^;]*$"):
            libst.open("https://nowhere.invalid/a")
    monkeypatch.setenv("https_proxy", f"http://me:{'hidden' * 60}@host:99999")
    with fails(Status.IO, match="Unsupported proxy") as caught:
        libst.open("https://nowhere.invalid/a")
    assert "hidden" not in str(caught.value)


def test_a_proxy_with_a_certificate_is_held_against_those_named(nginx, monkeypatch):
    monkeypatch.setenv("https_proxy", nginx.https)
    with fails(Status.IO, match="certificate"):
        libst.open("https://nowhere.invalid/a")
    monkeypatch.setenv("SSL_CERT_FILE", nginx.certificate)
    with fails(Status.IO, match=r"CONNECT tunnel failed, response 4\d\d$"):
        libst.open("https://nowhere.invalid/a")


def test_unknown_schemes_and_plain_text(tmp_path):
    with fails(Status.UNSUPPORTED, match="gopher"):
        libst.open("gopher://host/model")
    with fails(Status.UNSUPPORTED, match="not encrypted"):
        libst.open("http://example.com/model.safetensors")


def test_a_local_file_may_be_called_as_a_scheme(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("s3:").mkdir()
    libst.save("s3:/a.safetensors", {"a": np.ones(3)})
    libst.save("https:a", {"a": np.ones(3)})
    assert list(libst.load("s3:/a.safetensors")) == ["a"] == list(libst.load("https:a"))


def test_stock_programs_read_urls_by_compat(nginx, arrays):
    from libst.compat import safe_open
    from libst.compat.numpy import load_file

    check(load_file(f"{nginx.http}/model.safetensors"), arrays)
    with safe_open(f"{nginx.http}/model.safetensors", "np") as f:
        np.testing.assert_array_equal(f.get_slice("rows")[2:4], arrays["rows"][2:4])


def test_opening_is_one_request_and_a_slice_one_more(faults, arrays):
    with libst.open(faults.url) as f:
        assert faults.requests == ["bytes=0-262143"]
        first = int(arrays["long"][15_000_000])
        assert f.slice("long")[15_000_000:15_004_096][0] == first
    assert len(faults.requests) == 2
    begin, end = map(int, re.findall(r"\d+", faults.requests[1]))
    assert end - begin < 40_000


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """The path of a model of long rows, which no first answer holds."""
    path = tmp_path_factory.mktemp("wide") / "model.safetensors"
    rows = np.arange(512, dtype=np.uint8)[:, None] + np.zeros((512, 65536), dtype=np.uint8)
    libst.save(path, {"rows": rows})
    return path


@pytest.mark.parametrize("call", ["read", "slice", "read_many", "join", "verify", "diff"])
def test_what_reads_much_has_several_requests_under_way(wide, tmp_path, call):
    """And they are few."""
    left = (slice(None), slice(0, 16384))

    def read_many(url):
        halves = [("rows", (slice(begin, begin + 256), left[1])) for begin in (0, 256)]
        with libst.open(url) as f:
            for part in f.read_many(halves):
                np.testing.assert_array_equal(part[:, -1], np.arange(256))

    def slice_of(url):
        with libst.open(url) as f:
            np.testing.assert_array_equal(f.slice("rows")[left][:, -1], np.arange(512) % 256)

    def read(url):
        with libst.open(url) as f:
            np.testing.assert_array_equal(f.read("rows")[:, -1], np.arange(512) % 256)

    calls = {
        "read": read,
        "slice": slice_of,
        "read_many": read_many,
        "join": lambda url: libst.join(url, tmp_path / "to"),
        "verify": libst.verify,
        "diff": lambda url: libst.diff(url, wide, tmp_path / "to"),
    }
    whole = wide.read_bytes()
    with FaultServer(whole, whole) as server:
        server.script = [None, "beside another", "beside another"]
        calls[call](server.url)
        assert len(server.requests) < 16
        assert len(set(server.requests)) == len(server.requests), "one waited alone, and was asked again"
        assert server.alone == 0
    if call == "join":
        check(libst.load(tmp_path / "to"), libst.load(wide))


@pytest.mark.parametrize("fault", ["reset", "cut", "short", 500, 503, 429])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_what_passes_is_not_noticed(faults, arrays, fault, at):
    faults.script = [None] * at + [fault, fault]
    check(libst.load(faults.url), arrays)


def test_what_an_older_answer_left_on_its_connection_is_not_noticed(faults, arrays):
    """A store may answer HEAD with a body."""
    with libst.open(faults.url) as f:
        faults.begin_anew(["leftovers"])
        assert f.slice("long")[15_000_000] == arrays["long"][15_000_000]
        assert len(faults.requests) == 2
    faults.begin_anew(["leftovers"])
    with fails(Status.IO, match="HTTP/0.9"):
        libst.open(faults.url)


def test_what_follows_a_body_is_no_part_of_its_head(faults, arrays):
    faults.script = ["trailer"] * 2
    check(libst.load(faults.url), arrays)


def test_a_stall_ends(faults, arrays, monkeypatch):
    monkeypatch.setenv("ST_REMOTE_STALL_SECONDS", "1")
    faults.script = [None, "stall"]
    check(libst.load(faults.url), arrays)


def test_a_byte_now_and_then_is_a_stall(faults, arrays, monkeypatch):
    monkeypatch.setenv("ST_REMOTE_STALL_SECONDS", "1")
    faults.script = [None, "drip"]
    check(libst.load(faults.url), arrays)


def test_a_byte_now_and_then_holds_no_call_for_good(faults, monkeypatch):
    """What a head brings is no part of it."""
    monkeypatch.setenv("ST_REMOTE_STALL_SECONDS", "1")
    monkeypatch.setenv("ST_REMOTE_DEADLINE_SECONDS", "10")
    faults.script = [None] + ["drip"] * 100
    with fails(Status.IO, match="bytes came in 10 seconds; last, .*no more than [0-9]{1,2} bytes came in 3 seconds"):
        libst.load(faults.url)


def test_what_lasts_is_an_error(faults, monkeypatch):
    monkeypatch.setenv("ST_REMOTE_DEADLINE_SECONDS", "3")
    faults.script = [503] * 100
    with fails(Status.IO, match=r"503 ScriptedFault: as the script says \(request id REQUEST17\).*tried"):
        libst.open(faults.url)


@pytest.mark.parametrize("fault", ["replaced", "wrong etag", 404])
def test_another_version_is_never_mixed_in(faults, fault):
    faults.script = [None, None, fault]
    with fails(Status.FILE_CHANGED):
        libst.load(faults.url)


@pytest.mark.parametrize("fault", ["wrong range", "gzip", 403])
def test_a_wrong_answer_is_an_error(faults, fault):
    faults.script = [None, fault]
    with fails(Status.IO, Status.UNSUPPORTED, Status.PERMISSION):
        libst.load(faults.url)


@pytest.mark.parametrize("script", [["long line"] * 2, [None] + ["long line"] * 4])
def test_an_answer_with_a_line_that_is_too_long_is_told_by_its_line(faults, script):
    """libcurl says that there is no memory."""
    faults.script = script
    with fails(Status.IO, match="the head of its answer has a line of more than 100 KiB"):
        libst.load(faults.url)
    assert len(faults.requests) <= len(script)  # and the first of them was asked once more at most


def test_a_flipped_bit_is_told_by_the_checksum_of_the_store(tmp_path):
    arrays = {"a": np.arange(400_000, dtype=np.uint8), "b": np.arange(1000)}
    libst.save(tmp_path / "a.safetensors", arrays)
    whole = (tmp_path / "a.safetensors").read_bytes()
    with FaultServer(whole, whole, "md5=0123==,crc32c=" + crc32c(whole)) as server:
        server.script = [None, "flipped"]
        with fails(Status.CHECKSUM, match="not what was stored"):
            libst.load(server.url)
        check(libst.load(server.url), arrays)
        with libst.open(server.url) as f:  # a part is not checked
            server.begin_anew(["flipped"])
            assert f.read("b")[0] == 0


def test_a_flipped_bit_is_told_by_the_checksum_of_s3(s3, gateway_disk, tmp_path):
    """Which S3 says with no range."""
    arrays = {"a": np.zeros(20_000_000, dtype=np.uint8), "b": np.arange(1000)}
    libst.save(tmp_path / "a.safetensors", arrays)
    s3_upload.put(s3, "rotten", "a.safetensors", (tmp_path / "a.safetensors").read_bytes(), KEYS)
    check(libst.load("s3://rotten/a.safetensors"), arrays)
    with open(gateway_disk / "root" / "rotten" / "a.safetensors", "r+b") as f:
        f.seek(10_000_000)
        f.write(b"\x01")
    with fails(Status.CHECKSUM, match="not what was stored"):
        libst.load("s3://rotten/a.safetensors")
    with libst.open("s3://rotten/a.safetensors") as f:  # a part is not checked
        np.testing.assert_array_equal(f.read("b"), arrays["b"])


def test_no_fault_brings_a_wrong_byte(faults, arrays, monkeypatch):
    """1,000 faults with ST_TEST_BOUND=full."""
    monkeypatch.setenv("ST_REMOTE_STALL_SECONDS", "1")
    monkeypatch.setenv("ST_REMOTE_DEADLINE_SECONDS", "60")
    full = os.environ.get("ST_TEST_BOUND") == "full"
    random = Random(21)
    # The rest of the other model is the first one's, once it is there; and a stall takes its second.
    kinds = ["reset", "cut", "short", 500, 503, 429, 403, 404, "wrong range", "wrong etag", "gzip", *["stall"][:full]]
    injected = loaded = 0
    while injected < (1000 if full else 40):
        faults.begin_anew([random.choice([None, random.choice(kinds)]) for _ in range(6)])
        try:
            check(libst.load(faults.url), arrays)
            loaded += 1
        except libst.Error as error:
            known = (Status.IO, Status.PERMISSION, Status.NO_FILE, Status.FILE_CHANGED, Status.UNSUPPORTED)
            assert error.status in known, error
        injected += sum(fault is not None for fault in faults.script[: len(faults.requests)])
    assert loaded > 0


def served(nginx, path, at_least):
    """The lines of the log about that path; nginx writes them when an answer has gone out."""
    while len(lines := [line for line in nginx.log.read_text().splitlines() if path in line]) < at_least:
        time.sleep(0.01)
    return lines


def test_a_checkpoint_of_100_shards_is_a_request_a_shard(nginx, folder):
    """10^5 tensors: two requests for the index, then one for each shard that is looked at."""
    shards = folder / "hundred"
    shards.mkdir()
    places = {}
    for i in range(100):
        tensors = {f"layers.{i}.weight.{j}": np.full(1, 1000 * i + j, dtype=np.int32) for j in range(1000)}
        name = f"model-{i + 1:05}-of-00100.safetensors"
        libst.save(shards / name, tensors)
        places |= dict.fromkeys(tensors, name)
    (shards / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    with libst.open(f"{nginx.http}/hundred/model.safetensors.index.json") as f:
        assert len(served(nginx, "/hundred/", 2)) == 2
        assert len(f) == 100_000
        for i in (3, 97):
            assert f.read(f"layers.{i}.weight.7")[0] == 1000 * i + 7
        assert len(served(nginx, "/hundred/", 4)) == 4


NEEDS_ALL_SHARDS = {
    "load": libst.load,
    "names": lambda url: list(libst.open(url).keys()),
    "ls": lambda url: stctl("ls", url),
    "stats": lambda url: stctl("stats", url),
    "view": lambda url: stctl("view", url),
    "a pattern": lambda url: stctl("ls", url, "t*"),
    "info": lambda url: stctl("info", url),
}


ELSEWHERE = dict.fromkeys(["storage", "filesystem", "map", "reason"])  # what is told of it differs


def five_shards(tmp_path):
    """Their bytes by path, and the path of their index. Each has a tensor of its number."""
    objects = {}
    for i in range(5):
        libst.save(tmp_path / "m", {f"t{i}": np.full(10, i, "u1")})
        objects[f"/m-{i}.safetensors"] = (tmp_path / "m").read_bytes()
    places = {f"t{i}": f"m-{i}.safetensors" for i in range(5)}
    index = "/model.safetensors.index.json"
    objects[index] = json.dumps({"metadata": {}, "weight_map": places}).encode()
    return objects, index


@pytest.mark.parametrize("needs_all", NEEDS_ALL_SHARDS.values(), ids=NEEDS_ALL_SHARDS)
def test_shards_that_are_all_needed_are_opened_side_by_side(tmp_path, needs_all):
    objects, index = five_shards(tmp_path)
    with GatheringServer(objects, lambda path, _: path != index, until=5) as server:
        needs_all(server.url + index)
        assert server.most == 5
    assert {path for path, _ in server.requests} == set(objects)


def read_many(url, names):
    with libst.open(url) as f:
        read = f.read_many(names)
        return list(read.values()) if isinstance(read, dict) else read


NEEDS_NAMED_SHARDS = {
    "load": lambda url, names: list(libst.load(url, names).values()),
    "load views": lambda url, names: list(libst.load(url, names, mapping="copy-on-write").values()),
    "read_many": read_many,
    "read_many into": lambda url, names: read_many(url, {name: np.empty(10, "u1") for name in names}),
    "read_many of parts": lambda url, names: read_many(url, [(name, slice(None)) for name in names]),
}


@pytest.mark.parametrize("needs_named", NEEDS_NAMED_SHARDS.values(), ids=NEEDS_NAMED_SHARDS)
def test_shards_of_tensors_that_are_named_are_opened_side_by_side(tmp_path, needs_named):
    """And no others."""
    objects, index = five_shards(tmp_path)
    with GatheringServer(objects, lambda path, _: path != index, until=3) as server:
        for array, i in zip(needs_named(server.url + index, ["t4", "t1", "t3"]), (4, 1, 3), strict=True):
            assert array.tolist() == [i] * 10
        assert server.most == 3
    assert {path for path, _ in server.requests} == set(objects) - {"/m-0.safetensors", "/m-2.safetensors"}


CHANGES_BY_A_URL = {"update": ["update", "--from"], "put": ["put", "--from"]}


def five_of_stctl(tmp_path, how, url, names):
    """What stctl makes of these tensors of a URL, in a file that has them all, of zeros."""
    libst.save(tmp_path / "here", {f"t{i}": np.zeros(10, "u1") for i in range(5)})
    command, *rest = how
    ran = stctl(command, tmp_path / "here", *rest, url, *names)
    assert ran.returncode == 0, ran.stderr
    return {name: array.tolist() for name, array in libst.load(tmp_path / "here").items()}


LS_WORDS = {  # the words, the numbers of the shards that are needed, and of the tensors that are listed
    "names": (["t4", "t1", "t3"], {1, 3, 4}, [1, 3, 4]),
    "after a name that is none": (["none", "t4", "t1", "t3"], {1, 3, 4}, [1, 3, 4]),
    "a pattern": (["t[4]", "t1"], {0, 1, 2, 3, 4}, [1, 4]),
}


@pytest.mark.parametrize("words, shards, listed", LS_WORDS.values(), ids=LS_WORDS)
def test_ls_opens_the_shards_that_it_needs_side_by_side(tmp_path, words, shards, listed):
    objects, index = five_shards(tmp_path)
    with GatheringServer(objects, lambda path, _: path != index, until=len(shards)) as server:
        told = stctl("ls", server.url + index, "--names", *words)
        assert server.most == len(shards)
    assert told.stdout.split() == [f"t{i}" for i in listed]
    assert {path for path, _ in server.requests} == {f"/m-{i}.safetensors" for i in shards} | {index}


@pytest.mark.parametrize("names", [["t4", "t1", "t3"], []], ids=["names", "all"])
@pytest.mark.parametrize("how", CHANGES_BY_A_URL.values(), ids=CHANGES_BY_A_URL)
def test_a_change_by_a_url_opens_the_shards_that_it_needs_side_by_side(tmp_path, how, names):
    objects, index = five_shards(tmp_path)
    needed = {f"/m-{name[1:]}.safetensors" for name in names} or set(objects) - {index}
    with GatheringServer(objects, lambda path, _: path != index, until=len(needed)) as server:
        made = five_of_stctl(tmp_path, how, server.url + index, names)
        assert server.most == len(needed)
    assert {path for path, _ in server.requests} == needed | {index}
    assert made == {f"t{i}": [i if not names or f"t{i}" in names else 0] * 10 for i in range(5)}


@pytest.mark.parametrize("quiet", [[], ["-q"]], ids=["bar", "quiet"])
@pytest.mark.parametrize("how", CHANGES_BY_A_URL.values(), ids=CHANGES_BY_A_URL)
def test_a_change_by_a_url_shows_that_it_reads(tmp_path, how, quiet):
    big = {"w": np.arange(8_000_000, dtype="u1")}
    libst.save(tmp_path / "there", big)
    libst.save(tmp_path / "here", {"w": np.zeros(8_000_000, "u1")})
    master, terminal = os.openpty()
    with GatheringServer({"/m": (tmp_path / "there").read_bytes()}, lambda _, first: first > 0) as server:
        command, *rest = how
        with subprocess.Popen(
            [STCTL, command, *quiet, tmp_path / "here", *rest, f"{server.url}/m"],
            stdout=subprocess.DEVNULL,
            stderr=terminal,
            env={**os.environ, "TERM": "xterm"},
        ) as changes:
            os.close(terminal)
            server.await_held(1)
            if not quiet:
                seen = b""
                while b"reading [" not in seen:
                    seen += os.read(master, 1000)
            server.let_go()
            seen = b""
            with contextlib.suppress(OSError):  # the terminal's end
                while part := os.read(master, 1000):
                    seen += part
            assert changes.wait(60) == 0 and not (quiet and seen)
    os.close(master)
    assert libst.load(tmp_path / "here")["w"].tobytes() == big["w"].tobytes()


@pytest.mark.parametrize("needs_named", NEEDS_NAMED_SHARDS.values(), ids=NEEDS_NAMED_SHARDS)
def test_a_name_that_no_shard_has_is_told(tmp_path, needs_named):
    objects, index = five_shards(tmp_path)
    with GatheringServer(objects, lambda *_: False) as server, fails(Status.NOT_FOUND, match="'none'"):
        needs_named(server.url + index, ["t1", "none", "t2"])


def written(folder, objects):
    for path, content in objects.items():
        (folder / path[1:]).write_bytes(content)


def five_shards_and_deltas(tmp_path):
    """The same, and the paths of deltas: no tensor is shown any more of two shards and of a delta."""
    objects, index = five_shards(tmp_path)
    written(tmp_path, objects)
    states = [{f"t{i}": np.full(10, i, "u1") for i in range(5)}]
    states.append({**states[0], "t4": np.ones(20, "u1")})
    states.append({name: array for name, array in states[0].items() if name not in ("t2", "t4")} | {"u": np.ones(3)})
    deltas = []
    for i, (before, after) in enumerate(zip(states, states[1:], strict=False)):
        libst.save(tmp_path / "before", before)
        libst.save(tmp_path / "after", after)
        libst.diff(tmp_path / "before", tmp_path / "after", tmp_path / f"delta-{i}")
        deltas.append(f"/delta-{i}")
        objects[deltas[-1]] = (tmp_path / deltas[-1][1:]).read_bytes()
    return objects, index, deltas


@pytest.mark.parametrize("has_deltas", [False, True], ids=["shards", "deltas"])
@pytest.mark.parametrize("json_flag", [[], ["--json"]])
def test_info_opens_each_file_of_a_url_once(tmp_path, json_flag, has_deltas):
    objects, index, deltas = five_shards_and_deltas(tmp_path) if has_deltas else (*five_shards(tmp_path), [])
    written(tmp_path, objects)

    def told_of(place):
        layers = [word for delta in deltas for word in ("--delta", place + delta)]
        return stctl("info", *json_flag, place + index, *layers).stdout

    here = told_of(str(tmp_path))
    with GatheringServer(objects, lambda *_: False) as server:
        there = told_of(server.url).replace(server.url, str(tmp_path))
    assert sorted(path for path, _ in server.requests) == sorted(objects)
    assert here
    if json_flag:
        here, there = ({**json.loads(told), **ELSEWHERE} for told in (here, there))
    else:
        here, there = (
            [line for line in told.splitlines() if line.startswith(("Files ", "m-", "delta-"))]
            for told in (here, there)
        )
    assert there == here


def test_verify_opens_each_delta_once_besides_the_verification(tmp_path):
    """To count what is in it."""
    objects, index, deltas = five_shards_and_deltas(tmp_path)
    with GatheringServer(objects, lambda *_: False) as server:
        layers = [server.url + delta for delta in deltas]
        libst.verify(server.url + index, deltas=layers, progress=lambda *_: None)
        of_the_library = Counter(path for path, _ in server.requests)
        server.requests.clear()
        told = stctl("verify", server.url + index, *(word for layer in layers for word in ("--delta", layer)))
        asked = Counter(path for path, _ in server.requests)
    total = sum(len(content) for path, content in objects.items() if path != index)
    assert told.stdout.endswith(f": ok (7 files, 4 tensors, {total:,} bytes)\n"), told.stderr
    assert asked == of_the_library + Counter(list(objects))


def test_the_size_of_the_files_counts_what_deltas_hide(tmp_path):
    objects, index, deltas = five_shards_and_deltas(tmp_path)
    with GatheringServer(objects, lambda *_: False) as server:
        layers = [word for delta in deltas for word in ("--delta", server.url + delta)]
        told = json.loads(stctl("view", "--json", server.url + index, *layers).stdout)
    assert told["file_size"] == sum(len(content) for path, content in objects.items() if path != index)


def test_a_read_of_one_long_tensor_has_requests_side_by_side(tmp_path):
    libst.save(tmp_path / "m", {"w": np.ones(128 << 20, "u1")})
    with GatheringServer({"/m": (tmp_path / "m").read_bytes()}, lambda _, first: first > 0, until=4) as server:
        with libst.open(f"{server.url}/m") as f:
            assert f.read("w").all()
        assert server.most == 4


def test_the_shards_of_a_bucket_are_asked_for_in_the_region_of_their_index(tmp_path, monkeypatch):
    libst.save(tmp_path / "m", {f"t{i}": np.full(10, i, "u1") for i in range(3)})
    libst.reshard(tmp_path / "m", tmp_path / "shards", 10)
    objects = {f"/bucket/{path.name}": path.read_bytes() for path in (tmp_path / "shards").iterdir()}
    refused = []

    def refuses(request):
        if "/eu-central-1/s3/" in request.headers["Authorization"]:
            return False
        refused.append(request.path)
        body = b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-central-1</Region></Error>"
        request.send_response(400)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)
        return True

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    with GatheringServer(objects, lambda *_: False, refuses=refuses) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        assert len(libst.load("s3://bucket/model.safetensors.index.json")) == 3
    assert refused == ["/bucket/model.safetensors.index.json"]


def test_a_slice_of_100_gigabytes_is_two_requests(nginx, folder):
    n = 100_000_000_000
    header = json.dumps({"w": {"dtype": "U8", "shape": [n], "data_offsets": [0, n]}}).encode()
    with open(folder / "sparse.safetensors", "wb") as out:
        out.write(len(header).to_bytes(8, "little") + header)
        out.truncate(8 + len(header) + n)
    with libst.open(f"{nginx.http}/sparse.safetensors") as f:
        assert not f.slice("w")[n // 2 : n // 2 + 4096].any()
    lines = served(nginx, "/sparse.safetensors", 2)
    assert len(lines) == 2
    assert sum(int(line.split()[-1]) for line in lines) <= 300 << 10


def test_a_read_outlives_many_cuts(s3, toxiproxy, arrays, monkeypatch):
    """Each connection ends after 3 MB."""
    port = toxiproxy(int(s3.rsplit(":", 1)[1]), ("limit_data", {"bytes": 3_000_000}))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    check(libst.load("s3://models/model.safetensors"), arrays)


def test_a_slow_link(nginx, toxiproxy, arrays):
    port = toxiproxy(int(nginx.http.rsplit(":", 1)[1]), ("latency", {"latency": 30, "jitter": 10}))
    check(libst.load(f"http://127.0.0.1:{port}/model.safetensors"), arrays)


def fork_unawares() -> int:
    """By the system call alone: no library hears of it."""
    clone = {"x86_64": 56, "aarch64": 220}.get(platform.machine())
    if clone is None:
        pytest.skip("the number of this machine's system call is not known here")
    return ctypes.PyDLL(None).syscall(clone, signal.SIGCHLD, 0, 0, 0, 0)


forks = pytest.mark.parametrize("fork", [os.fork, fork_unawares])


def ends_well(child: int, body) -> bool:
    """`child`: as fork() answers. Does the body, in the child, say so, within 20 s?"""
    if child == 0:
        signal.alarm(20)
        status = 1
        try:
            status = not body()
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def is_refused_and_closes(f, tensor) -> bool:
    try:
        f.read(tensor)
    except NotImplementedError as error:
        f.close()
        gc.collect()
        return "before a fork; open it anew" in str(error)
    return False


@forks
def test_a_child_reads_nothing_and_harms_nothing(nginx, arrays, fork):
    with libst.open(f"{nginx.http}/model.safetensors") as f:
        f.read("small")
        assert ends_well(fork(), lambda: is_refused_and_closes(f, "long"))
        np.testing.assert_array_equal(f.read("long"), arrays["long"])


@forks
def test_a_child_opens_no_shard_beside_its_parents(nginx, folder, fork):
    """It would take the connections that its parent reads from."""
    shards = folder / f"forked {fork.__name__}"
    libst.save(folder / "forked.safetensors", {"a": np.zeros(100, "u1"), "b": np.ones(100, "u1")})
    libst.reshard(folder / "forked.safetensors", shards, 100)
    with libst.open(f"{nginx.http}/{shards.name}/model.safetensors.index.json".replace(" ", "%20")) as f:
        f.read("a")
        assert ends_well(fork(), lambda: is_refused_and_closes(f, "b"))
        assert f.read("b").tolist() == [1] * 100
    path = f"/{shards.name}/model-00002".replace(" ", "%20")
    assert len([line for line in served(nginx, path, 1) if path in line]) == 1


@pytest.mark.parametrize("gives_up", [True, False], ids=["gives up", "goes on"])
def test_a_child_amid_its_parents_open_leaves_the_connection_alone(nginx, tmp_path, monkeypatch, gives_up):
    """By TLS a request that is dropped ends its connection. A child that goes on would take its parent's answer."""
    monkeypatch.setenv("SSL_CERT_FILE", nginx.certificate)
    libst.save(tmp_path / "m", {"a": np.arange(4, dtype="u1")})
    body = (tmp_path / "m").read_bytes()
    asked, child_is_gone, farewells, children = threading.Event(), threading.Event(), [], []

    def serve(listener, context):
        with context.wrap_socket(listener.accept()[0], server_side=True) as client:
            head = b""
            while b"\r\n\r\n" not in head:
                head += client.recv(65536)
            asked.set()
            child_is_gone.wait(60)
            client.setblocking(False)
            with contextlib.suppress(ssl.SSLWantReadError):
                farewells.append(client.recv(1))
            client.setblocking(True)
            last = len(body) - 1
            client.sendall(
                b'HTTP/1.1 206 Partial Content\r\nETag: "one"\r\nConnection: close\r\n'
                b"Content-Length: %d\r\nContent-Range: bytes 0-%d/%d\r\n\r\n" % (len(body), last, len(body)) + body
            )

    def fork_once(*_):
        if not asked.is_set() or children:
            return
        children.append(os.fork())
        if not children[0]:
            signal.alarm(20)  # ends it where it hangs
            if not gives_up:
                return
            raise KeyError("the child gives up")
        children.append(os.waitpid(children[0], 0)[1])
        child_is_gone.set()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(nginx.certificate, nginx.key)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener, context))
        server.start()
        try:
            with libst.open(f"https://127.0.0.1:{listener.getsockname()[1]}/m", progress=fork_once) as f:
                assert f.read("a").tolist() == [0, 1, 2, 3]
        except (KeyError, libst.Error) as error:
            if children == [0]:
                os._exit(0 if gives_up or error.status == libst.Status.FORKED else 1)
            raise
        finally:
            if children == [0]:
                os._exit(2)
        server.join()
    assert children[1:] == [0] and not farewells


def test_a_child_closes_amid_its_parents_reads(tmp_path):
    """Threads of the parent wait for answers, for places, and for the right to read, which no thread of the child
    gives back."""
    libst.save(tmp_path / "m", {"w": np.ones(400_000, "u1")})
    with GatheringServer({"/m": (tmp_path / "m").read_bytes()}, holds=lambda path, first: first > 0) as server:
        f = libst.open(f"{server.url}/m")
        with ThreadPoolExecutor(80) as pool:
            reads = [pool.submit(f.read, "w") for _ in range(80)]
            server.await_held(16)

            def closes():
                f.refresh()
                f.close()
                gc.collect()
                return True

            assert ends_well(os.fork(), closes)
            server.let_go()
            for read in reads:
                assert read.result().all()
        f.close()


@pytest.mark.parametrize("load", ["lasts", "waits"])
def test_a_fork_amid_the_load_of_libst_remote_waits_for_it_and_not_for_ever(tmp_path, load):
    library = Path(os.environ.get("LIBST_LIBRARY", ROOT / "build" / "capi" / "libst.so.2"))
    source, made = Path(__file__).with_name("fork_amid_load.c"), tmp_path / "a"
    compiled = ["cc", source, "-o", made, "-rdynamic", "-pthread", "-I", ROOT / "capi" / "include", library]
    subprocess.run([*compiled, f"-Wl,-rpath,{library.parent}"], check=True)
    ran = subprocess.run([made, load], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout) == (0, "0\n"), ran


def test_threads_share_a_handle(nginx, arrays):
    with libst.open(f"{nginx.http}/model.safetensors") as f, ThreadPoolExecutor(8) as pool:
        for read in pool.map(lambda _: f.read("rows"), range(64)):
            np.testing.assert_array_equal(read, arrays["rows"])


def test_without_libst_remote_a_url_is_refused(tmp_path):
    library = os.environ.get("LIBST_LIBRARY", ROOT / "build" / "capi" / "libst.so.2")
    shutil.copy(library, tmp_path / "libst.so.2")
    program = "import libst\ntry: libst.open('https://localhost/a')\nexcept NotImplementedError as e: print(e)"
    environment = {**os.environ, "LIBST_LIBRARY": str(tmp_path / "libst.so.2"), "LD_LIBRARY_PATH": ""}
    told = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert re.search("libst-remote.so.2.*install it", told.stdout), told


def test_libst_needs_no_network_library():
    library = os.environ.get("LIBST_LIBRARY", ROOT / "build" / "capi" / "libst.so.2")
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    assert not re.search("curl|ssl|crypto|xml", needed)
    assert STCTL


def test_c_opens_a_url_with_64_kib_of_stack(nginx, tmp_path, monkeypatch):
    """As every call does: threads of other runtimes have no more. With what TLS takes, and the library's loading."""
    monkeypatch.setenv("SSL_CERT_FILE", nginx.certificate)
    library = Path(os.environ.get("LIBST_LIBRARY", ROOT / "build" / "capi" / "libst.so.2"))
    (tmp_path / "a.c").write_text(
        "#include <pthread.h>\n#include <st/st.h>\n#include <stdio.h>\n"
        "static void *look(void *url) {\n"
        "  st_file *f;\n"
        "  if (st_open(url, NULL, &f)) return puts(st_last_error()), NULL;\n"
        "  if (st_load(f, NULL, 0, NULL)) puts(st_last_error());\n"
        '  printf("%zu", st_count(f));\n'
        "  st_close(f);\n"
        "  return NULL;\n"
        "}\n"
        "int main(int n, char **v) {\n  pthread_t t;\n  pthread_attr_t a;\n  (void)n;\n  pthread_attr_init(&a);\n"
        " return pthread_attr_setstacksize(&a, 65536) || pthread_create(&t, &a, look, v[1]) || pthread_join(t, NULL);\n"
        "}\n"
    )
    compiled = ["cc", tmp_path / "a.c", "-o", tmp_path / "a", "-I", ROOT / "capi" / "include", library]
    subprocess.run([*compiled, f"-Wl,-rpath,{library.parent}"], check=True)
    ran = subprocess.run([tmp_path / "a", f"{nginx.https}/model.safetensors"], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "4"), ran


def test_without_memory_each_call_says_so(nginx, tmp_path):
    library = Path(os.environ.get("LIBST_LIBRARY", ROOT / "build" / "capi" / "libst.so.2"))
    source, made = Path(__file__).with_name("out_of_memory.c"), tmp_path / "a"
    compiled = ["cc", source, "-o", made, "-I", ROOT / "capi" / "include", library, f"-Wl,-rpath,{library.parent}"]
    subprocess.run(compiled, check=True)
    urls = [f"{nginx.http}/model.safetensors?a=b", f"{nginx.http}/shards/"]
    ran = subprocess.run([made, *urls], capture_output=True, text=True)
    assert ran.returncode == 0, ran
    assert int(ran.stdout) > 100, "are allocations counted?"


@contextlib.contextmanager
def descriptors_left(count):
    before, taken = resource.getrlimit(resource.RLIMIT_NOFILE), []
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 64, before[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        for fd in taken[:count]:
            os.close(fd)
        del taken[:count]
        yield
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_process_with_too_many_open_files_is_told(nginx):
    url = f"{nginx.http}/model.safetensors"
    libst.open(url).close()  # from now on the library is there
    with descriptors_left(0), fails(Status.IO, match="cannot open 'a socket': Too many open files; .*ulimit -n"):
        libst.open(url)


@pytest.mark.parametrize("left", range(5))
def test_a_process_without_a_descriptor_for_the_certificates_is_told(nginx, monkeypatch, left):
    monkeypatch.setenv("SSL_CERT_FILE", nginx.certificate)
    url = f"{nginx.https}/model.safetensors"
    libst.open(url).close()
    with descriptors_left(left):
        try:
            libst.open(url).close()
        except libst.Error as e:
            told = e
        else:
            return
    assert "ulimit -n" in str(told)


# Two are opened side by side.
@pytest.mark.parametrize("left", [5, 7, 9])
def test_an_open_of_shards_makes_do_with_the_descriptors_that_are_left(nginx, arrays, left):
    url = f"{nginx.http}/shards/model.safetensors.index.json"
    libst.open(url).close()
    for _ in range(10):
        with descriptors_left(left):
            loaded = libst.load(url)
        check(loaded, arrays)


@pytest.mark.parametrize("kind", ["http", "https"])
@pytest.mark.parametrize("left", [5, 20, 40])
def test_a_load_makes_do_with_the_descriptors_that_are_left(nginx, folder, monkeypatch, kind, left):
    monkeypatch.setenv("SSL_CERT_FILE", str(nginx.certificate))
    path = folder / "long.safetensors"
    if not path.exists():
        libst.save(path, {f"t{i}": np.full(8 << 20, i, "u1") for i in range(20)})
    url = f"{getattr(nginx, kind)}/long.safetensors"
    libst.open(url).close()  # from now on the library is there
    with descriptors_left(left):
        loaded = libst.load(url)
    assert all((loaded[f"t{i}"] == i).all() for i in range(20))


def test_idle_connections_end_where_another_one_is_wanted(nginx, folder):
    url = f"{nginx.http}/model.safetensors"
    with libst.open(url) as idle:
        idle.read("rows")
        with descriptors_left(0), libst.open(url) as f:
            assert list(f) == list(idle)


def test_many_handles_take_few_descriptors(nginx, arrays):
    def descriptors():
        return len(os.listdir("/proc/self/fd"))

    url, before = f"{nginx.http}/model.safetensors", descriptors()
    with contextlib.ExitStack() as opened:
        files = [opened.enter_context(libst.open(url)) for _ in range(200)]
        assert descriptors() - before < 150
        for f in files[::50]:
            np.testing.assert_array_equal(f.read("rows"), arrays["rows"])
    assert descriptors() == before


@pytest.fixture(params=["signal", "interrupt"])
def stops(request, faults):
    """A function that makes the call, and stops it when the server has got so many requests, and leaves the last half
    answered. `file`: whose call it is, if it is a file's."""

    def during(call, file=None, requests=1):
        before = len(faults.requests)

        def is_asked():
            return len(faults.requests) >= before + requests

        stop = file.interrupt if request.param == "interrupt" else signal_us
        with stopper(is_asked, stop), pytest.raises((Stopped, libst.Error)) as told:
            call()
        if request.param == "signal":
            assert told.type is Stopped
        else:
            assert told.value.status == Status.INTERRUPTED
        asked = [tuple(map(int, re.findall(r"\d+", each))) for each in faults.requests[before:]]
        assert len({last for _, last in asked}) == len(asked), "it was asked again, for the other half"

    return during


@pytest.mark.parametrize("stops", ["signal"], indirect=True)  # there is no handle to interrupt yet
def test_an_open_that_waits_for_a_server_can_be_stopped(faults, stops):
    faults.script = ["stall"]
    stops(lambda: libst.open(faults.url))


@pytest.mark.parametrize("call", ["view", "read", "slice", "read_many", "prefetch"])
def test_a_read_that_waits_for_a_server_can_be_stopped(faults, stops, arrays, call):
    calls = {
        "view": lambda f: f["long"],
        "read": lambda f: f.read("long"),
        "slice": lambda f: f.slice("long")[10_000_000:10_000_009:3],
        "read_many": lambda f: f.read_many(["long", "rows"]),
        "prefetch": lambda f: f.prefetch(),
    }
    with libst.open(faults.url) as f:
        faults.script = [None] + ["stall"] * 8
        stops(lambda: calls[call](f), f)
        faults.script = []
        check({name: f[name] for name in f}, arrays)


class _LateShards(SimpleHTTPRequestHandler):
    """The index comes at once, shards when the server is told to go on. It notes whether it was not, for a minute."""

    def do_GET(self):
        if self.path.endswith(".safetensors"):
            self.server.asked.set()
            self.server.gave_up |= not self.server.go_on.wait(60)
        super().do_GET()

    def log_message(self, *_):
        pass


class _JoinedServer(ThreadingHTTPServer):
    """Its end is that of all its threads."""

    daemon_threads = False

    def handle_error(self, *_):
        pass  # they have seen enough


@pytest.fixture
def late_shards(tmp_path):
    libst.save(tmp_path / "whole.safetensors", {"a": np.zeros(100, "u1"), "b": np.ones(100, "u1")})
    libst.reshard(tmp_path / "whole.safetensors", tmp_path / "cut", 100)
    with _JoinedServer(("127.0.0.1", 0), partial(_LateShards, directory=tmp_path / "cut")) as server:
        server.asked, server.go_on, server.gave_up = threading.Event(), threading.Event(), False
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        server.url = f"http://127.0.0.1:{server.server_port}/model.safetensors.index.json"
        yield server
        server.go_on.set()
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("call", ["view", "info", "read", "read_many"])
def test_a_shard_that_does_not_come_can_be_waited_for_no_longer(late_shards, call):
    calls = {
        "view": lambda f: f["b"],
        "info": lambda f: f.info("b"),
        "read": lambda f: f.read("b"),
        "read_many": lambda f: f.read_many(["b", "a"]),
    }
    with libst.open(late_shards.url) as f:
        with stopper(late_shards.asked.is_set), pytest.raises(Stopped):
            calls[call](f)
        assert not late_shards.gave_up, "the call went on until the shard came"
        late_shards.go_on.set()
        calls[call](f)
        assert f["b"].tolist() == [1] * 100


@pytest.mark.parametrize("call", ["read_many", "read_parts", "prefetch", "prefetch_all", "load"])
def test_the_progress_of_a_call_ends_its_wait_for_a_shard(late_shards, call):
    def progress(done, total):
        if late_shards.asked.is_set():
            raise Stopped

    calls = {
        "read_many": lambda f: f.read_many(["b", "a"], progress=progress),
        "read_parts": lambda f: f.read_many([("b", 1), ("a", 2)], progress=progress),
        "prefetch": lambda f: f.prefetch(["b", "a"], progress=progress),
        "prefetch_all": lambda f: f.prefetch(progress=progress),
        "load": lambda f: libst.load(late_shards.url, progress=progress),
    }
    with libst.open(late_shards.url) as f:
        with pytest.raises(Stopped):
            calls[call](f)
        assert not late_shards.gave_up, "the call went on until the shard came"


@pytest.mark.parametrize("stops", ["signal"], indirect=True)
@pytest.mark.parametrize("call", ["verify", "join", "diff", "merge"])
def test_what_reads_a_whole_model_can_be_stopped(faults, stops, folder, tmp_path, call):
    to = tmp_path / "to"
    calls = {
        "verify": lambda: libst.verify(faults.url),
        "join": lambda: libst.join(faults.url, to),
        "diff": lambda: libst.diff(faults.url, folder / "other.safetensors", to),
        "merge": lambda: libst.merge(faults.url, [folder / "delta.safetensors"], to),
    }
    faults.script = [None] + ["stall"] * 8
    stops(calls[call], requests=2)
    assert not list(tmp_path.iterdir())
