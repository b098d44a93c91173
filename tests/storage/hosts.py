"""Several hosts on one machine: clients of one server, each with a mount and so with caches of its own.

GlusterFS by volfiles written here: a brick and two clients on loopback, no management daemon. MooseFS in a network
namespace with an address of its own, as its chunk server refuses loopback. Every process dies with us.
"""

from __future__ import annotations

import functools
import os
import shutil
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

import clients

ADDRESS = "10.77.0.1"  # of the network namespace; nothing outside of it sees it


def _volume(name, kind, below=(), **options):
    lines = [f"volume {name}", f"  type {kind}"]
    lines += [f"  option {key.replace('__', '.').replace('_', '-')} {value}" for key, value in options.items()]
    lines += [f"  subvolumes {' '.join(below)}"] if below else []
    return "\n".join([*lines, "end-volume", ""])


def _free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Hosts:
    """`mounts`: the same folder, as each host sees it. `client(i).process` is what a host's mount lives in."""

    def __init__(self, folder):
        self.folder, self._stack, self.clients = folder, ExitStack(), []
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def mounts(self):
        return [c.mountpoint for c in self.clients]

    def _start(self, command, name):
        process = clients.start(command, self.folder / f"{name}.log")
        self._stack.callback(clients.stop, process)
        return process

    def _mount(self, command, name):
        mountpoint = self.folder / name
        client = clients.Client(mountpoint, [mountpoint if word == "MOUNT" else word for word in command])
        self._stack.callback(client.close)
        self.clients.append(client)

    def close(self):
        self._stack.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class GlusterFs(Hosts):
    def __init__(self, folder, *options):
        super().__init__(folder)
        try:
            self.serve(_free_port())
            for name in ("a", "b"):
                log = folder / f"{name}-client.log"
                command = ["glusterfs", "-N", "-f", folder / "client.vol", "-l", log, *options, "MOUNT"]
                self._mount(command, name)
        except BaseException:
            self.close()
            raise

    def serve(self, port):
        brick = self.folder / "brick"
        brick.mkdir()
        loopback = {"transport__socket__bind_address": "127.0.0.1", "transport__socket__listen_port": port}
        (self.folder / "server.vol").write_text(
            _volume("disk", "storage/posix", directory=brick)
            + _volume("locks", "features/locks", ["disk"])
            + "volume server\n  type protocol/server\n  option transport-type tcp\n"
            + "".join(f"  option {k.replace('__', '.').replace('_', '-')} {v}\n" for k, v in loopback.items())
            + "  option auth.addr.locks.allow 127.0.0.1\n  subvolumes locks\nend-volume\n"
        )
        (self.folder / "client.vol").write_text(
            "volume client\n  type protocol/client\n  option transport-type tcp\n"
            f"  option remote-host 127.0.0.1\n  option remote-port {port}\n"
            "  option remote-subvolume locks\nend-volume\n"
        )
        self._start(["glusterfsd", "-N", "-f", self.folder / "server.vol", "-l", self.folder / "brick.log"], "server")
        clients.disk.wait_until(lambda: _listens(port), f"GlusterFS at port {port}")


def _listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


class MooseFs(Hosts):
    def __init__(self, folder, *options):
        super().__init__(folder)
        try:
            self._holder = self._namespace()
            self._enter = ["nsenter", "-n", "-t", self._holder]
            self.serve()
            for name in ("a", "b"):
                self._mount([*self._enter, "mfsmount", "MOUNT", "-H", ADDRESS, "-f", *options], name)
        except BaseException:
            self.close()
            raise

    def _namespace(self):
        script = f"ip link set lo up && ip addr add {ADDRESS}/32 dev lo && echo ready && exec sleep infinity"
        command = ["unshare", "-n", "sh", "-c", script]
        holder = clients.start(command, self.folder / "namespace.log", stdout=subprocess.PIPE)
        self._stack.callback(clients.stop, holder)
        if holder.stdout.readline() != b"ready\n":
            raise RuntimeError(f"no network namespace: {(self.folder / 'namespace.log').read_text()}")
        return holder.pid

    def serve(self):
        for name in ("master", "chunks", "store"):
            (self.folder / name).mkdir()
        shutil.copy("/var/lib/mfs/metadata.mfs.empty", self.folder / "master" / "metadata.mfs")
        (self.folder / "exports").write_text("* / rw,alldirs,admin,maproot=0:0\n")
        (self.folder / "disks").write_text(f"{self.folder / 'store'}\n")
        user = {"WORKING_USER": "root", "WORKING_GROUP": "root"}
        listens = {f"{name}_LISTEN_HOST": ADDRESS for name in ("MATOML", "MATOCS", "MATOCL")}
        self._configure(
            "master", **user, **listens, DATA_PATH=self.folder / "master", EXPORTS_FILENAME=self.folder / "exports"
        )
        self._configure(
            "chunkserver",
            **user,
            DATA_PATH=self.folder / "chunks",
            HDD_CONF_FILENAME=self.folder / "disks",
            HDD_LEAVE_SPACE_DEFAULT="16MiB",
            MASTER_HOST=ADDRESS,
            BIND_HOST=ADDRESS,
            CSSERV_LISTEN_HOST=ADDRESS,
        )
        for name, port in (("master", 9421), ("chunkserver", 9422)):
            self._start([*self._enter, f"mfs{name}", "-f", "-c", self.folder / f"{name}.cfg", "start"], name)
            clients.disk.wait_until(functools.partial(self._listens, port), f"mfs{name} at port {port}")

    def _listens(self, port):
        sockets = [line.split() for line in Path(f"/proc/{self._holder}/net/tcp").read_text().splitlines()[1:]]
        return any(s[1].endswith(f":{port:04X}") and s[3] == "0A" for s in sockets)

    def _configure(self, name, **values):
        (self.folder / f"{name}.cfg").write_text("".join(f"{key} = {value}\n" for key, value in values.items()))


RIGS = {
    "glusterfs": (GlusterFs, []),
    "glusterfs-fresh-opens": (GlusterFs, ["--fopen-keep-cache=off"]),
    "moosefs": (MooseFs, []),
}
NEEDS = {
    "glusterfs": ["glusterfs", "glusterfsd"],
    "glusterfs-fresh-opens": ["glusterfs", "glusterfsd"],
    "moosefs": ["mfsmaster", "mfschunkserver", "mfsmount", "nsenter", "ip"],
}


def make(kind, folder):
    """A rig; its `mounts` are writable, and empty."""
    rig, options = RIGS[kind]
    made = rig(Path(folder), *options)
    try:
        clients.disk.wait_until(lambda: _writable(made.mounts[0]), f"{kind} to take a file")
    except BaseException:
        made.close()
        raise
    return made


def _writable(mount):
    probe = mount / "probe"
    try:
        if os.statvfs(mount).f_bavail == 0:  # no disk has reported yet, and a write would wait for one for minutes
            return False
        fd = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            os.write(fd, b"x")
            os.fsync(fd)
        finally:
            os.close(fd)
        os.unlink(probe)
    except OSError:
        return False
    return True
