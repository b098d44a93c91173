"""Puts a blob into a store that speaks Azure's API. Signs by its own code, not by libst's."""

import base64
import hmac
import urllib.parse
import urllib.request
from email.utils import formatdate

# Every emulator has them: https://learn.microsoft.com/azure/storage/common/storage-use-azurite
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def signature(text: str) -> str:
    return base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), "sha256")).decode()


def put(endpoint: str, name: str, data: bytes) -> None:
    """A blob, or with "?restype=container" a container."""
    path, _, query = name.partition("?")
    path = urllib.parse.quote(path)
    fields = {"x-ms-blob-type": "BlockBlob", "x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    fields_text = "".join(f"{name}:{value}\n" for name, value in fields.items())
    resource = f"/{ACCOUNT}{urllib.parse.urlsplit(endpoint).path}/{path}" + "".join(
        f"\n{part.replace('=', ':')}" for part in query.split("&") if part
    )
    kind = "application/octet-stream"
    length = str(len(data) or "")
    to_sign = f"PUT\n\n\n{length}\n\n{kind}\n\n\n\n\n\n\n{fields_text}{resource}"
    fields |= {"authorization": f"SharedKey {ACCOUNT}:{signature(to_sign)}", "content-type": kind}
    url = f"{endpoint}/{path}" + (f"?{query}" if query else "")
    urllib.request.urlopen(urllib.request.Request(url, data, fields, method="PUT")).close()


def shared_access_signature() -> str:
    """Of the account, to read blobs."""
    parts = {"sp": "r", "ss": "b", "srt": "o", "se": "2099-01-01T00:00:00Z", "sv": "2021-08-06"}
    values = [ACCOUNT, parts["sp"], parts["ss"], parts["srt"], "", parts["se"], "", "", parts["sv"], "", ""]
    return urllib.parse.urlencode(parts | {"sig": signature("\n".join(values))})
