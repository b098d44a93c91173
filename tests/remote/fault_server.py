"""An HTTP server of one object that does what its script says at the n-th request: real sockets, wrong answers."""

import base64
import re
import socket
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

REFUSALS = {
    "expired": (400, "ExpiredToken"),
    "late": (403, "RequestTimeTooSkewed", [("Date", "Fri, 24 May 2030 00:00:00 GMT")]),
    "elsewhere": (
        301,
        "PermanentRedirect",
        [("x-amz-bucket-region", "eu-west-3"), ("Location", "http://127.0.0.1:1/")],
    ),
    "to another host": (307, "TemporaryRedirect", [("Location", "http://127.0.0.1:1/")]),
}


def crc32c(data: bytes) -> str:
    """In base64, as Google's stores say it."""
    table = []
    for b in range(256):
        for _ in range(8):
            b = b >> 1 ^ (0x82F63B78 if b & 1 else 0)
        table.append(b)
    crc = 0xFFFFFFFF
    for b in data:
        crc = crc >> 8 ^ table[(crc ^ b) & 0xFF]
    return base64.b64encode((crc ^ 0xFFFFFFFF).to_bytes(4, "big")).decode()


class FaultServer:
    """`script` has a fault for each request from the first on; after its end all is well. `checksum`: what it says of
    the first object, as "crc32c=…"."""

    def __init__(self, first: bytes, second: bytes, checksum: str = ""):
        self.script: list = []
        self.requests: list = []  # the ranges that were asked for
        self.signed: list = []  # what each was signed by
        self.links = 0  # that the Hub gave
        self.alone = 0  # requests beside which no other came
        self._pair = threading.Barrier(2)
        self._object, self._second, self._etag = first, second, '"first"'
        self._checksum = checksum
        self._lock = threading.Lock()
        self._over = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                if self.path.startswith("/owner/model/resolve/main/"):
                    outer._lead(self)
                else:
                    outer._answer(self)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self._server.block_on_close = True
        self._server.handle_error = lambda *_: None
        self.url = f"http://127.0.0.1:{self._server.server_port}/model.safetensors"

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._over.set()
        self._pair.abort()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _lead(self, to: BaseHTTPRequestHandler):
        """As a Hub, to a link that expires."""
        with self._lock:
            self.links += 1
        to.send_response(302)
        to.send_header("Location", f"/model.safetensors?signature=hidden{self.links}")
        to.send_header("Content-Length", "0")
        to.end_headers()

    def begin_anew(self, script: list):
        with self._lock:
            self.requests.clear()
            self.script = script

    def _answer(self, to: BaseHTTPRequestHandler):
        with self._lock:
            fault = self.script[len(self.requests)] if len(self.requests) < len(self.script) else None
            self.requests.append(to.headers["Range"])
            self.signed.append((to.headers["Authorization"], to.headers["x-amz-date"]))
            if fault == "replaced":
                self._object, self._etag = self._second, '"second"'
            whole, etag = self._object, self._etag
        to.close_connection = fault is not None
        if fault in (500, 503, 429, 403, 404):
            return self._refuse(to, fault)
        if fault in REFUSALS:
            return self._refuse(to, *REFUSALS[fault])
        if fault == "reset":
            return self._reset(to)
        if fault == "beside another":
            try:
                self._pair.wait(60)
            except threading.BrokenBarrierError:
                self.alone += 1
        if to.headers["If-Match"] not in (None, etag):
            return self._refuse(to, 412)
        first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", to.headers["Range"]).groups())
        last = min(last, len(whole) - 1)
        if fault == "wrong range":
            first, last = first + 1, last - 1
        body = whole[first : last + 1]
        if fault == "leftovers":  # of an older answer, as a body behind the head alone
            to.wfile.write(b"left over")
        to.send_response(206)
        to.send_header("Content-Range", f"bytes {first}-{last}/{len(whole)}")
        if fault == "trailer":
            to.send_header("Transfer-Encoding", "chunked")
        else:
            to.send_header("Content-Length", str(len(body)))
        to.send_header("ETag", '"wrong"' if fault == "wrong etag" else etag)
        if self._checksum:
            to.send_header("x-goog-hash", self._checksum)
        if fault == "flipped":
            body = body[:-1] + bytes([body[-1] ^ 16])
        if fault == "gzip":
            to.send_header("Content-Encoding", "gzip")
        if fault == "long line":
            to.send_header("x-long", "x" * (101 << 10))
        to.end_headers()
        if fault == "drip":
            return self._drip(to, body)
        if fault in ("short", "cut", "stall"):
            body = body[: len(body) // 2]
        elif fault == "trailer":  # of the answer, and not of the object
            body = b"%x\r\n%s\r\n0\r\nx-goog-hash: crc32c=AAAAAA==\r\n\r\n" % (len(body), body)
        try:
            to.wfile.write(body)
            to.wfile.flush()
        except OSError:
            return None  # they have seen enough
        if fault == "cut":
            return self._reset(to)
        if fault == "stall":
            self._over.wait()
        return None

    @staticmethod
    def _refuse(to, code, name="ScriptedFault", fields=()):
        body = f"<Error><Code>{name}</Code><Message>as the script says</Message></Error>".encode()
        to.send_response_only(code)
        for field in fields:
            to.send_header(*field)
        to.send_header("Content-Length", str(len(body)))
        to.send_header("x-amz-request-id", "REQUEST17")
        to.end_headers()
        to.wfile.write(body)

    def _drip(self, to, body):
        """A byte now and then, until they have seen enough."""
        for at in range(len(body)):
            try:
                to.wfile.write(body[at : at + 1])
                to.wfile.flush()
            except OSError:
                return
            if self._over.wait(0.2):
                return

    @staticmethod
    def _reset(to):
        to.wfile.flush()
        to.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        to.connection.close()
