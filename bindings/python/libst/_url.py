"""URLs, as far as Python looks at them: which names are some, and what may be shown of one."""

import os
import re

_URL = re.compile("[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_STORE = re.compile("(?:s3a?|gs|gcs|az|abfss?|hf)://", re.IGNORECASE)
_SECRETS = re.compile(r"\?.*(?:sig|signature|token|versionid|generation|snapshot)=.*", re.IGNORECASE | re.DOTALL)
_USER = re.compile("(^[^/]*//)[^/]*@")
_USER_OF_STORE = re.compile("(^[^/]*//)[^/:]*:[^/]*@")
_HOST = re.compile(r"[^/]*//(?:\[[^/]*|[^/:]*(?::[0-9]*)?)(?:/|\Z)")
_BUCKET = re.compile(r"[^/]*//(?:arn:[^/]*|[^/:]*)(?:/|\Z)")


def shown(path: str) -> str:
    """A URL without its user and query, which may be secrets. A name in a store may have a '?', and an '@'.
    Core does the same: tests/unit/base/shown_urls.inc."""
    begin = _URL.match(path)
    if not begin:
        return path
    if _STORE.match(path):
        host, rest = _BUCKET, _USER_OF_STORE.sub(r"\1", _SECRETS.sub("", path))
    else:
        host, rest = _HOST, _USER.sub(r"\1", re.split("[?#]", path)[0])
    return rest if host.match(rest) else begin.group() + "..."


def is_url(path: str) -> bool:
    return _URL.match(path) is not None


def absolute(path: str) -> str:
    """For other processes, which may have other working directories, as this one may have later."""
    if path.startswith("/") or is_url(path):
        return path
    try:
        return os.path.abspath(path)
    except FileNotFoundError:  # the working directory was removed
        return path
