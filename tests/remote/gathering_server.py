"""An HTTP server that holds answers back until so many requests are under way. So a test sees what is asked at once."""

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class GatheringServer:
    """`objects`: bytes by path. `holds(path, first)`: is the answer to a request from that byte on held? Once `until`
    such places are waited for, or after a minute, none is held any more. Without `until`, let_go() says when. A client
    that asks again for a place that is slow to come waits for no other.
    `refuses`: answers a request that is refused, and says so."""

    def __init__(self, objects: dict, holds=lambda path, first: True, until=None, refuses=lambda request: False):
        self.requests: list = []  # path and first byte
        self._held: list = []  # paths and first bytes
        self._over = False
        self._news = threading.Condition()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                if refuses(self):
                    return
                first, last = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
                with outer._news:
                    outer.requests.append((self.path, first))
                if holds(self.path, first):
                    outer._hold((self.path, first), until)
                whole = objects.get(self.path)
                if whole is None:
                    self.send_response(404)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                body = memoryview(whole)[first : last + 1]
                self.send_response(206)
                self.send_header("ETag", '"one"')
                self.send_header("Content-Range", f"bytes {first}-{first + len(body) - 1}/{len(whole)}")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        class Server(ThreadingHTTPServer):
            request_queue_size = 128
            daemon_threads = False  # its end is that of all its threads, and so of their sockets

            def handle_error(self, *_):
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.let_go()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def most(self) -> int:
        """Places that were waited for at once."""
        return len(set(self._held))

    def _hold(self, place, until):
        with self._news:
            if self._over:
                return
            self._held.append(place)
            self._news.notify_all()
            if self.most == until or not self._news.wait_for(lambda: self._over, 60):
                self._over = True
                self._news.notify_all()

    def let_go(self):
        """All that are held, and none is held any more."""
        with self._news:
            self._over = True
            self._news.notify_all()

    def await_held(self, n: int):
        with self._news:
            assert self._news.wait_for(lambda: len(self._held) >= n, 60), len(self._held)
