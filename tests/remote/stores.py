"""The stores, one interface each: how an object comes into it, how a reader is told of it, and its URL."""

import json
import os
import re
import urllib.parse
import urllib.request
import zlib
from pathlib import Path

import azure_upload
import s3_upload

KEYS = ("libst-tests", "a-secret-that-no-message-has")
HUB_TOKEN = "hf_hidden"


class Store:
    """`folder` has `first/NAME` and `second/NAME`: two versions of each object. They are put under `prefix`, so that
    several readers have objects of their own."""

    says_checksums = True

    def __init__(self, endpoint, folder, prefix):
        self.endpoint, self._folder, self._prefix = endpoint, Path(folder), prefix
        self._versions = {}
        self._checksums = json.loads((self._folder / "checksums.json").read_text())

    def fill(self, version):
        for file in (self._folder / version).iterdir():
            if self._versions.get(file.name) != version:
                self._put_version(file.name, version)

    def replace(self, path):
        """The object of that path by its second version."""
        self._put_version(self._name_in(path), "second")

    def checksum_field(self, path):
        """What Google's store would say of it."""
        name = self._name_in(path)
        return {} if self.says_checksums else {"x-goog-hash": self._checksums[f"{self._versions[name]}/{name}"]}

    def whole(self, path):
        name = self._name_in(path)
        return (self._folder / self._versions[name] / name).read_bytes()

    @staticmethod
    def _name_in(path):
        return re.search(r"model[-\w]*\.safetensors(\.index\.json)?", path)[0]

    def _put_version(self, name, version):
        self._versions[name] = version
        self.put(f"{self._prefix}/{name}", (self._folder / version / name).read_bytes())

    def url(self, name):
        return f"{self.scheme}://models/{self._prefix}/{name}"


class S3(Store):
    scheme = "s3"
    says_checksums = False  # but to a reader that asks for all at once

    def put(self, name, data):
        s3_upload.put(self.endpoint, "models", name, data, KEYS)

    def environment(self, address):
        return {
            "AWS_ENDPOINT_URL": f"http://{address}",
            "AWS_ACCESS_KEY_ID": KEYS[0],
            "AWS_SECRET_ACCESS_KEY": KEYS[1],
        }


class Google(Store):
    scheme = "gs"

    def put(self, name, data):
        put_to_google(self.endpoint, name, data)

    def environment(self, address):
        return {"STORAGE_EMULATOR_HOST": f"http://{address}"}


class Azure(Store):
    scheme = "az"
    says_checksums = False

    def put(self, name, data):
        azure_upload.put(f"{self.endpoint}/{azure_upload.ACCOUNT}", f"models/{name}", data)

    def environment(self, address):
        endpoint = f"http://{address}/{azure_upload.ACCOUNT}"
        settings = f"AccountName={azure_upload.ACCOUNT};AccountKey={azure_upload.KEY};BlobEndpoint={endpoint};"
        return {"AZURE_STORAGE_CONNECTION_STRING": settings}


class Hub(Store):
    """The folder around that one, which a server has as a model of the Hub."""

    says_checksums = False

    def put(self, name, data):
        file = self._folder.parent / name
        file.parent.mkdir(exist_ok=True)
        new = file.with_suffix(".new")
        new.write_bytes(data)
        # An ETag of nginx is of the second and the size.
        changed = 1_000_000_000 + zlib.crc32(data) % 1_000_000_000
        os.utime(new, (changed, changed))
        new.rename(file)

    def url(self, name):
        return f"hf://owner/model/{self._prefix}/{name}"

    def environment(self, address):
        return {"HF_ENDPOINT": f"http://{address}", "HF_TOKEN": HUB_TOKEN}


KINDS = {"s3": S3, "gs": Google, "az": Azure, "hub": Hub}


def store_of(kind, endpoint, folder, prefix):
    return KINDS[kind](endpoint, folder, prefix)


def put_to_google(endpoint: str, name: str, data: bytes) -> None:
    query = urllib.parse.urlencode({"uploadType": "media", "name": name})
    ask = urllib.request.Request(f"{endpoint}/upload/storage/v1/b/models/o?{query}", data, method="POST")
    ask.add_header("Content-Type", "application/octet-stream")
    urllib.request.urlopen(ask).close()
