"""Puts an object into a store that speaks S3; makes the bucket. Signs by its own code, not by libst's."""

import hashlib
import hmac
import urllib.error
import urllib.parse
import urllib.request
from datetime import datetime, timezone


def put(endpoint: str, bucket: str, key: str, data: bytes, keys: tuple) -> "str | None":
    """The version, where the bucket keeps them."""
    try:
        _send(f"{endpoint}/{bucket}", b"", keys)
    except urllib.error.HTTPError as error:
        if error.code != 409:  # it is there
            raise
    return _send(f"{endpoint}/{bucket}/{urllib.parse.quote(key, safe='/~')}", data, keys)


def keep_versions(endpoint: str, bucket: str, keys: tuple) -> None:
    _send(f"{endpoint}/{bucket}", b"", keys)
    name = "VersioningConfiguration"
    wanted = f'<{name} xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Status>Enabled</Status></{name}>'
    _send(f"{endpoint}/{bucket}?versioning=", wanted.encode(), keys)


def _send(url: str, data: bytes, keys: tuple) -> "str | None":
    parts = urllib.parse.urlsplit(url)
    now = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    payload = hashlib.sha256(data).hexdigest()
    fields = {"host": parts.netloc, "x-amz-content-sha256": payload, "x-amz-date": now}
    names = ";".join(fields)
    canonical = "\n".join(
        ["PUT", parts.path, parts.query, *(f"{name}:{value}" for name, value in fields.items()), "", names, payload]
    )
    scope = f"{now[:8]}/us-east-1/s3/aws4_request"
    to_sign = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = b"AWS4" + keys[1].encode()
    for part in [*scope.split("/"), to_sign]:
        key = hmac.digest(key, part.encode(), "sha256")
    fields["authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={keys[0]}/{scope}, SignedHeaders={names}, Signature={key.hex()}"
    )
    with urllib.request.urlopen(urllib.request.Request(url, data, fields, method="PUT")) as answer:
        return answer.headers["x-amz-version-id"]
