"""A proxy before a real store that spoils the n-th answer, in a process of its own: so the descriptors and threads of
the one who reads are that one's alone.

    python3 fault_proxy.py STORE        a store of stores.py, as JSON

It listens on two ports of loopback. Its first line tells its own; the other is another host's, for redirects.
Then each line of its input is a command, and has one line of answer:
    {"faults": {"3": "reset"}, "rest": null}
        from now on it spoils the answer to the third request so, and all others by "rest"
    {"version": "first"}
        this version of all objects comes into the store
    {}
        what came since: how many requests, how many answers were spoilt, and the heads that came to the other host
"""

import asyncio
import gzip
import json
import re
import socket
import struct
import sys
import urllib.parse

from stores import store_of

# What the reader asks again for.
PASSES = [
    "closed",  # the connection ends before the answer
    "reset",
    "silent",  # nothing comes, for ever
    "cut",  # the connection ends within the body
    "reset within",
    "stalled",  # half of the body comes, and no more
    "short",  # half of the body, by a server that says that it is all
    "too little",  # more was said than comes
    "cut chunk",
    "no length",  # the end of the connection would be the end of the body
    "500",
    "503",
    "429",
    "408",
]
# What is wrong for good.
WRONG = [
    "no answer of HTTP",
    "other range",  # and its bytes
    "said range",  # the bytes that were asked for, and another range said
    "other size",
    "more",  # more bytes than the range has
    "whole",  # all of the object, by a server that knows no ranges
    "gzip",
    "other version",  # and its bytes
    "no version",
    "replaced",  # in the store, before it answers
    "removed",
    "401",
    "403",
    "redirect",
    "flipped",  # a bit
]


class Head:
    """The first lines of a request or an answer."""

    def __init__(self, text: bytes):
        first, *lines = text.decode("latin-1").split("\r\n")
        self.first = first
        self.fields = dict(line.split(": ", 1) for line in lines if ": " in line)

    def __getitem__(self, name):
        return next((value for known, value in self.fields.items() if known.lower() == name.lower()), None)

    def __setitem__(self, name, value):
        del self[name]
        self.fields[name] = value

    def __delitem__(self, name):
        self.fields = {known: value for known, value in self.fields.items() if known.lower() != name.lower()}

    def __bytes__(self):
        lines = [self.first, *(f"{name}: {value}" for name, value in self.fields.items()), "", ""]
        return "\r\n".join(lines).encode("latin-1")


async def read_head(reader):
    try:
        return Head((await reader.readuntil(b"\r\n\r\n"))[:-4])
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


async def read_answer(reader):
    head = await read_head(reader)
    if head["Transfer-Encoding"] != "chunked":
        return head, await reader.readexactly(int(head["Content-Length"]))
    body = b""
    while n := int(await reader.readline(), 16):
        body += (await reader.readexactly(n + 2))[:n]
    await reader.readline()
    del head["Transfer-Encoding"]
    head["Content-Length"] = len(body)
    return head, body


def without_version(head):
    for name in ("ETag", "x-goog-generation", "Last-Modified"):
        del head[name]


def spoil(fault, head, body, whole, other_host, path):
    """What is said in place of what the store said. `whole`: the object."""
    half = len(body) // 2
    if fault and fault.isdigit():
        return Head(
            f"HTTP/1.1 {fault} Spoilt".encode()
        ), b"<Error><Code>Spoilt</Code><Message>said so</Message></Error>"
    if fault == "removed":
        return Head(b"HTTP/1.1 404 Not Found"), b""
    if fault == "redirect":
        return Head(f"HTTP/1.1 307 Temporary Redirect\r\nLocation: {other_host}{path}".encode()), b""
    if fault == "gzip":
        body = gzip.compress(body, 1)
        head["Content-Encoding"] = "gzip"
    elif fault == "said range":
        first, last, size = map(int, re.findall(r"\d+", head["Content-Range"]))
        head["Content-Range"] = f"bytes {first + 1}-{last}/{size}"
    elif fault == "other range":
        first, last, size = map(int, re.findall(r"\d+", head["Content-Range"]))
        head["Content-Range"] = f"bytes {first + 8}-{last}/{size}"
        body = whole[first + 8 : last + 1]
    elif fault == "whole":
        head.first = "HTTP/1.1 200 OK"
        del head["Content-Range"]
        body = whole
    elif fault == "other size":
        head["Content-Range"] += "0"
    elif fault == "more":
        body += body[:64]
    elif fault == "other version":
        body = bytes(b ^ 255 for b in body)
        without_version(head)
        head["ETag"], head["x-goog-generation"] = '"another"', "17"
    elif fault == "no version":
        without_version(head)
    elif fault == "flipped":
        body = body[:half] + bytes([body[half] ^ 16]) + body[half + 1 :]
    elif fault == "short":
        body = body[:half]
    return head, body


class Proxy:
    def __init__(self, store):
        self._store = store
        self._host, self._port = urllib.parse.urlsplit(store.endpoint).netloc.split(":")
        self._arm({})

    def _arm(self, command):
        self._faults, self._rest = command.get("faults", {}), command.get("rest")
        self._requests, self._spoilt, self._elsewhere = 0, 0, []

    async def run(self):
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=1 << 20)
        other = await asyncio.start_server(self._serve_elsewhere, "127.0.0.1", 0, limit=1 << 20)
        self._other = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}"
        self._say({"port": server.sockets[0].getsockname()[1]})
        commands = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(commands)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        while line := await commands.readline():
            command = json.loads(line)
            if "version" in command:
                self._store.fill(command["version"])
            elif command:
                self._arm(command)
            self._say({"requests": self._requests, "spoilt": self._spoilt, "elsewhere": self._elsewhere})

    @staticmethod
    def _say(answer):
        print(json.dumps(answer), flush=True)

    async def _serve(self, reader, writer):
        def with_faults(_request):
            self._requests += 1
            fault = self._faults.get(str(self._requests), self._rest)
            self._spoilt += fault is not None
            return fault

        await self._converse(reader, writer, with_faults)

    async def _serve_elsewhere(self, reader, writer):
        """The other host has the same objects."""

        def faithfully(request):
            self._elsewhere.append(bytes(request).decode("latin-1"))

        await self._converse(reader, writer, faithfully)

    async def _converse(self, reader, writer, fault_of):
        """One connection, with one of its own to the store."""
        ahead = None
        try:
            while request := await read_head(reader):
                fault = fault_of(request)
                ahead = ahead or await asyncio.open_connection(self._host, self._port, limit=1 << 20)
                if not await self._answer(request, fault, *ahead, writer, reader):
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the reader has had enough
        finally:
            for one in (ahead and ahead[1], writer):
                if one:
                    one.close()

    async def _answer(self, request, fault, from_store, to_store, writer, reader) -> bool:
        """False: the connection ends."""
        path = request.first.split(" ")[1]
        name = urllib.parse.unquote(path)
        if fault == "replaced":
            self._store.replace(name)
        to_store.write(bytes(request))
        head, body = await read_answer(from_store)
        for field, value in self._store.checksum_field(name).items():
            head[field] = value
        head, body = spoil(fault, head, body, self._store.whole(name), self._other, path)
        head["Content-Length"] = len(body)
        return await self._send(fault, head, body, writer, reader)

    async def _send(self, fault, head, body, writer, reader) -> bool:
        if fault == "closed":
            return False
        if fault == "reset":
            return self._reset(writer)
        if fault == "silent":
            return await self._wait_for_end(reader)
        if fault == "no answer of HTTP":
            writer.write(b"\x16\x03\x01 this is none\r\n\r\n")
            return False
        if fault == "too little":
            head["Content-Length"] = len(body) + 64
        elif fault in ("no length", "cut chunk"):
            del head["Content-Length"]
        if fault == "cut chunk":
            head["Transfer-Encoding"] = "chunked"
            body = f"{len(body):x}\r\n".encode() + body
        half = fault in ("cut", "reset within", "stalled", "no length", "cut chunk")
        writer.write(bytes(head) + body[: len(body) // 2 if half else None])
        await writer.drain()
        if fault == "stalled":
            return await self._wait_for_end(reader)
        if fault == "reset within":
            return self._reset(writer)
        return fault not in ("cut", "no length", "too little", "cut chunk")

    @staticmethod
    async def _wait_for_end(reader) -> bool:
        await reader.read()
        return False

    @staticmethod
    def _reset(writer) -> bool:
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
        return False


if __name__ == "__main__":
    asyncio.run(Proxy(store_of(**json.loads(sys.argv[1]))).run())
