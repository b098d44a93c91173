"""The services that give keys, where there is no cloud: AWS's STS and Identity Center, the metadata of a container and
of an instance, OAuth of Google and Entra, Google's IAM. All give one pair of keys, or one token."""

import json
import threading
import urllib.parse
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ENDS = "2099-01-01T00:00:00Z"


class TokenServices:
    """`asked` has (method, path, fields, body) of each request; `refuse` is a status that all answer from now on. While
    `go_on` is not set, nobody is answered."""

    def __init__(self, keys: tuple):
        self.asked: list = []
        self.refuse = 0
        self.go_on = threading.Event()
        self.go_on.set()
        self._keys = keys
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                with suppress(BrokenPipeError):  # who has stopped takes no answer
                    self.tell()

            def tell(self):
                body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
                outer.asked.append((self.command, self.path, self.headers, body))
                outer.go_on.wait()
                code, answer = outer._answer(self.path, self.headers, body)
                self.send_response(outer.refuse or code)
                self.send_header("x-amzn-requestid", "REQUEST18")
                self.send_header("metadata-flavor", "Google")
                self.end_headers()
                self.wfile.write((answer if not outer.refuse else '{"error": "access_denied"}').encode())

            do_POST = do_PUT = do_GET

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self.address = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.address}"

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def json_keys(self, **more) -> str:
        return json.dumps({"AccessKeyId": self._keys[0], "SecretAccessKey": self._keys[1], "Expiration": ENDS, **more})

    def _answer(self, path, fields, body):
        if path == "/token" and body.startswith("{"):
            knows = json.loads(body).get("refreshToken") == "another-secret"
            renewed = {"accessToken": "a-token", "expiresIn": 3600, "refreshToken": "another-token"}
            return 200 if knows else 400, json.dumps(renewed)
        form = dict(urllib.parse.parse_qsl(body))
        if "Action" in form:
            proves = form.get("WebIdentityToken") == "a-token" or "/sts/aws4_request" in (fields["Authorization"] or "")
            keys = f"<AccessKeyId>{self._keys[0]}</AccessKeyId><SecretAccessKey>{self._keys[1]}</SecretAccessKey>"
            return 200 if proves else 403, f"<R><Credentials>{keys}<Expiration>{ENDS}</Expiration></Credentials></R>"
        if path.startswith("/federation/"):
            keys = {"accessKeyId": self._keys[0], "secretAccessKey": self._keys[1], "expiration": 4070908800000}
            return 200 if fields["x-amz-sso_bearer_token"] == "a-token" else 401, json.dumps({"roleCredentials": keys})
        if path == "/container":
            return 200 if fields["Authorization"] == "a-token" else 401, self.json_keys()
        if path == "/latest/api/token":
            return 200, "a-token"
        if path.startswith("/latest/meta-data/"):
            knows = fields["x-aws-ec2-metadata-token"] == "a-token"
            return 200 if knows else 401, "role" if path.endswith("/") else self.json_keys(Code="Success")
        if path.endswith(":generateAccessToken"):
            proves = fields["Authorization"] == f"Bearer {self._keys[1]}"
            return 200 if proves else 403, json.dumps({"accessToken": "a-token", "expireTime": ENDS})
        if "token" in path:
            return 200, json.dumps({"access_token": self._keys[1], "expires_in": 3600})
        return 404, ""
