"""Several hosts on one machine: clients of one server, each with a mount and so with caches of its own.

The server and each host have a network namespace, with an address in a network that nothing outside of it sees. So a
host can be cut off. GlusterFS by volfiles written here: a brick and two clients, no management daemon. Every process
dies with us. CephFS of one monitor, one disk, one metadata server, and no manager.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import uuid
from contextlib import ExitStack, contextmanager
from pathlib import Path

import clients

NETWORK = "10.77.0"
SERVER = f"{NETWORK}.1"
NAMES = ("a", "b")


class Network:
    """A namespace for the server and one for each host, joined by a bridge."""

    def __init__(self, folder, stack):
        self._folder, self._stack = folder, stack
        bridge = f"ip link add hub type bridge && ip addr add {SERVER}/24 dev hub"
        self.server = self._namespace("server", bridge, "hub")
        self.hosts = []
        for i, name in enumerate(NAMES):
            host = self._namespace(name, "true", "lo")
            self.hosts.append(host)
            self._at(self.server, f"ip link add up{i} type veth peer name eth0 netns {host}")
            self._at(self.server, f"ip link set up{i} master hub up")
            self._at(host, f"ip addr add {NETWORK}.{i + 2}/24 dev eth0 && ip link set eth0 up")

    def _namespace(self, name, script, link):
        script = f"ip link set lo up && {script} && ip link set {link} up && echo ready && exec cat"
        command = ["unshare", "-n", "sh", "-c", script]
        log = self._folder / f"{name}-namespace.log"
        holder = clients.start(command, log, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._stack.callback(clients.stop, holder)
        if clients.disk.read_line(holder.stdout) != "ready\n":
            raise RuntimeError(f"no network namespace: {log.read_text()}")
        return holder.pid

    @staticmethod
    def enter(namespace):
        return ["nsenter", "-n", "-t", str(namespace)]

    def _at(self, namespace, script):
        subprocess.run([*self.enter(namespace), "sh", "-c", script], check=True)

    def switch(self, host, on):
        """The command that cuts a host off, without a word to either side, or joins it again."""
        return shlex.join([*self.enter(self.server), "ip", "link", "set", f"up{host}", "up" if on else "down"])

    def listens(self, port):
        sockets = [line.split() for line in Path(f"/proc/{self.server}/net/tcp").read_text().splitlines()[1:]]
        return any(s[1].endswith(f":{port:04X}") and s[3] == "0A" for s in sockets)


def _volume(name, kind, below=(), **options):
    lines = [f"volume {name}", f"  type {kind}"]
    lines += [f"  option {key.replace('__', '.').replace('_', '-')} {value}" for key, value in options.items()]
    lines += [f"  subvolumes {' '.join(below)}"] if below else []
    return "\n".join([*lines, "end-volume", ""])


class Hosts:
    """`mounts`: the same folder, as each host sees it. `life`: after so many seconds a server and a host that do not
    hear of each other give up, as far as the filesystem does."""

    counts_space = True

    def __init__(self, folder, *options, life=42):
        self.folder, self.life, self._stack, self.clients = folder, life, ExitStack(), []
        folder.mkdir(parents=True, exist_ok=True)
        try:
            self.network = Network(folder, self._stack)
            self.stops = []  # commands that end a server; a shell starts it again
            self.serve()
            for host, name in enumerate(NAMES):
                self._mount([*self.network.enter(self.network.hosts[host]), *self.client(name), *options], name)
        except BaseException:
            self.close()
            raise

    @property
    def mounts(self):
        return [c.mountpoint for c in self.clients]

    def _serve(self, command, name, port, stop="KILL"):
        again = shlex.join(["setpriv", "--pdeathsig", "KILL", *map(str, command)])
        enter = self.network.enter(self.network.server)
        shell = clients.start([*enter, "sh", "-c", f"while :; do {again}; done"], self.folder / f"{name}.log")
        self._stack.callback(clients.stop, shell)
        self.stops.append(f"pkill -{stop} -P {shell.pid}")
        clients.disk.wait_until(lambda: self.network.listens(port), f"{name} at port {port}")

    def _mount(self, command, name):
        mountpoint = self.folder / name
        client = clients.Client(mountpoint, [mountpoint if word == "MOUNT" else word for word in command])
        self._stack.callback(client.close)
        self.clients.append(client)

    # What a storm is troubled with: commands of a shell, which undo what they do.
    def freeze(self, host):
        """The FUSE client of a host is stopped for longer than the server remembers it."""
        pid = self.clients[host].process.pid
        return f"kill -STOP {pid} && sleep {self.life + 4} && kill -CONT {pid}"

    def cut(self, host):
        """The network of a host is cut for longer than the server remembers it."""
        return f"{self.network.switch(host, False)} && sleep {self.life + 4} && {self.network.switch(host, True)}"

    def restart(self):
        """The servers end, and start again; that takes GlusterFS 3 s and MooseFS 11."""
        return " && ".join([*self.stops, f"sleep {self.life + 8}"])

    @contextmanager
    def cut_off(self, host):
        subprocess.run(self.network.switch(host, False), shell=True, check=True)
        try:
            yield
        finally:
            subprocess.run(self.network.switch(host, True), shell=True, check=True)

    def mount_again(self):
        """Where a client hangs."""
        for client in self.clients:
            client.close()
            client.mount()

    def close(self):
        for client in self.clients:
            if client.process:  # none where it could not be mounted again
                client.process.send_signal(signal.SIGCONT)
        self._stack.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class GlusterFs(Hosts):
    PORT = 24007
    layers = ()  # of a client, above the one that speaks to the brick; with their options

    def client(self, name):
        return ["glusterfs", "-N", "-f", self.folder / "client.vol", "-l", self.folder / f"{name}-client.log", "MOUNT"]

    def serve(self):
        brick = self.folder / "brick"
        brick.mkdir()
        gives_up = {
            "transport__tcp_user_timeout": self.life,
            "transport__socket__keepalive": 1,
            "transport__socket__keepalive_time": max(1, self.life // 2),
            "transport__socket__keepalive_interval": 1,
            "transport__socket__keepalive_count": max(1, self.life // 2),
        }
        bind = {"transport__socket__bind_address": SERVER, "transport__socket__listen_port": self.PORT}
        tcp = {"transport_type": "tcp"}
        (self.folder / "server.vol").write_text(
            _volume("disk", "storage/posix", directory=brick)
            + _volume("locks", "features/locks", ["disk"])
            + _volume(
                "server",
                "protocol/server",
                ["locks"],
                **tcp,
                **bind,
                **gives_up,
                **{"auth__addr__locks__allow": f"{NETWORK}.*"},
            )
        )
        (self.folder / "client.vol").write_text(
            _volume(
                "client",
                "protocol/client",
                **tcp,
                **gives_up,
                remote_host=SERVER,
                remote_port=self.PORT,
                remote_subvolume="locks",
                ping_timeout=self.life,
            )
            + self._layers()
        )
        command = ["glusterfsd", "-N", "-f", self.folder / "server.vol", "-l", self.folder / "brick.log"]
        self._serve(command, "glusterfsd", self.PORT)

    def _layers(self):
        made, below = "", "client"
        for kind, options in self.layers:
            name = kind.split("/")[1]
            made += _volume(name, kind, [below], **options)
            below = name
        return made


class GlusterVolume(GlusterFs):
    """Its clients are as `gluster volume create` of 10.3 writes them into VOLUME.tcp-fuse.vol, but for two layers that
    remember what other hosts have changed since: names and sizes for a second, and the bytes of files up to 64 KiB."""

    remembers = ("performance/quick-read", "performance/md-cache")
    layers = (
        ("cluster/distribute", {"force_migration": "off", "lock_migration": "off"}),
        ("features/utime", {"noatime": "on"}),
        ("performance/write-behind", {}),
        ("performance/open-behind", {}),
        ("performance/io-threads", {}),
        ("debug/io-stats", {"threads": 16}),
    )


class GlusterDefaults(GlusterVolume):
    """With them, where `gluster volume create` has them."""

    layers = (
        *GlusterVolume.layers[:4],
        *((kind, {}) for kind in GlusterVolume.remembers),
        *GlusterVolume.layers[4:],
    )


class MooseFs(Hosts):
    def client(self, name):
        return ["mfsmount", "MOUNT", "-H", SERVER, "-f"]

    def serve(self):
        for name in ("master", "chunks", "store"):
            (self.folder / name).mkdir()
        shutil.copy("/var/lib/mfs/metadata.mfs.empty", self.folder / "master" / "metadata.mfs")
        (self.folder / "exports").write_text("* / rw,alldirs,admin,maproot=0:0\n")
        (self.folder / "disks").write_text(f"{self.folder / 'store'}\n")
        user = {"WORKING_USER": "root", "WORKING_GROUP": "root"}
        listens = {f"{name}_LISTEN_HOST": SERVER for name in ("MATOML", "MATOCS", "MATOCL")}
        self._configure(
            "master",
            **user,
            **listens,
            DATA_PATH=self.folder / "master",
            EXPORTS_FILENAME=self.folder / "exports",
            CHANGELOG_SAVE_MODE=1,  # what was answered is in its log when the master is killed
        )
        self._configure(
            "chunkserver",
            **user,
            DATA_PATH=self.folder / "chunks",
            HDD_CONF_FILENAME=self.folder / "disks",
            HDD_LEAVE_SPACE_DEFAULT="16MiB",
            MASTER_HOST=SERVER,
            BIND_HOST=SERVER,
            CSSERV_LISTEN_HOST=SERVER,
        )
        # `-a`: the master reads its logs of changes when it was killed. The other is told to end: one that is killed
        # while it writes leaves a chunk without its checksum, which is lost where it has no second copy.
        for name, port, again, stop in (("master", 9421, ["-a"], "KILL"), ("chunkserver", 9422, [], "TERM")):
            command = [f"mfs{name}", "-f", *again, "-c", self.folder / f"{name}.cfg", "start"]
            self._serve(command, f"mfs{name}", port, stop)

    def _configure(self, name, **values):
        (self.folder / f"{name}.cfg").write_text("".join(f"{key} = {value}\n" for key, value in values.items()))


class CephFs(Hosts):
    """Takes ten seconds to start. A host that is silent for `life`, at least 30, is shut out until it mounts anew."""

    counts_space = False  # a manager would
    MONITOR, DISK = 3300, 6800

    def client(self, name):
        return ["ceph-fuse", "-f", *self._configured(), "MOUNT"]

    def _configured(self):
        return ["--conf", str(self.folder / "ceph.conf")]

    def _run(self, *command, **options):
        command = [*self.network.enter(self.network.server), command[0], *self._configured(), *map(str, command[1:])]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=4 * clients.disk.LONGEST_WAIT, **options
        ).stdout

    def serve(self):
        cluster, disk, address = uuid.uuid4(), uuid.uuid4(), f"v2:{SERVER}:{self.MONITOR}/0"
        for name in ("mon", "osd", "mds", "run"):
            (self.folder / name).mkdir()
        run = self.folder / "run"
        self._configure(
            fsid=cluster,
            mon_host=address,
            mon_initial_members="a",
            public_addr=SERVER,
            ms_bind_msgr1="false",
            **dict.fromkeys(("auth_cluster_required", "auth_service_required", "auth_client_required"), "none"),
            run_dir=run,
            admin_socket=run / "$name.$pid.asok",
            log_file=run / "$name.$pid.log",
            crash_dir=run,
            pid_file="",
            **{f"{name}_data": self.folder / name for name in ("mon", "osd", "mds")},
            mon_data_avail_crit=1,
            mon_allow_pool_size_one="true",
            osd_pool_default_size=1,
            osd_pool_default_pg_autoscale_mode="off",
            osd_crush_chooseleaf_type=0,
            bluestore_block_size=2 << 30,
            # With a cache of its own a read of 16.2's client that meets another host's commit may wait for ever.
            client_oc="false",
        )
        self._run("monmaptool", "--create", "--fsid", cluster, "--addv", "a", f"[{address}]", self.folder / "monmap")
        self._run("ceph-mon", "-i", "a", "--mkfs", "--monmap", self.folder / "monmap")
        self._serve(["ceph-mon", "-i", "a", "-f", *self._configured()], "ceph-mon", self.MONITOR)
        pools = "osd pool create metadata 8\nosd pool create data 8\nfs new fs metadata data\n"
        self._run("ceph", input=f"osd new {disk}\n{pools}fs set fs session_timeout {self.life}\n")
        self._run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", disk)
        self._serve(["ceph-osd", "-i", "0", "-f", *self._configured()], "ceph-osd", self.DISK)
        self._serve(["ceph-mds", "-i", "a", "-f", *self._configured()], "ceph-mds", self.DISK)
        clients.disk.wait_until(lambda: "up:active" in self._run("ceph", "mds", "stat"), "the metadata server")

    def _configure(self, **values):
        lines = [f"{key.replace('_', ' ')} = {value}\n" for key, value in values.items()]
        (self.folder / "ceph.conf").write_text("[global]\n" + "".join(lines))


class JuiceFs(Hosts):
    """Names and locks lie in one Redis, which the hosts reach by the network; the bytes of files in a local folder, as
    in a bucket. The Redis syncs its log before it answers."""

    REDIS = 6379

    def client(self, name):
        url = f"redis://{SERVER}:{self.REDIS}/0"
        # A client gives up a host of which it has not heard for five beats. Without a supervisor it is one process.
        beat = [f"--heartbeat={max(1, self.life // 5)}s", f"--cache-dir={self.folder / f'{name}-cache'}"]
        quiet = ["--no-usage-report", "--no-syslog", "--no-agent", "--backup-meta=0"]
        return ["env", "JFS_SUPERVISOR=none", clients.program("juicefs"), "mount", *quiet, *beat, url, "MOUNT"]

    def serve(self):
        data = self.folder / "redis"
        data.mkdir()
        command = ["redis-server", "--bind", SERVER, "--port", self.REDIS, "--protected-mode", "no", "--dir", data]
        command += ["--save", "", "--appendonly", "yes", "--appendfsync", "always"]
        self._serve(command, "redis-server", self.REDIS)
        format_ = [clients.program("juicefs"), "format", "--no-agent", "--storage", "file", "--trash-days", "0"]
        format_ += ["--bucket", f"{self.folder / 'store'}/", f"redis://{SERVER}:{self.REDIS}/0", "libst"]
        with open(self.folder / "format.log", "wb") as log:
            subprocess.run([*self.network.enter(self.network.server), *format_], check=True, stdout=log, stderr=log)


RIGS = {
    "glusterfs": (GlusterFs, []),
    "glusterfs-fresh-opens": (GlusterFs, ["--fopen-keep-cache=off"]),
    "glusterfs-volume": (GlusterVolume, []),
    "glusterfs-defaults": (GlusterDefaults, []),
    "moosefs": (MooseFs, []),
    "cephfs": (CephFs, []),
    "juicefs": (JuiceFs, []),
}
NEEDS = {
    **{kind: ["glusterfs", "glusterfsd", "nsenter", "ip"] for kind in RIGS if kind.startswith("glusterfs")},
    "moosefs": ["mfsmaster", "mfschunkserver", "mfsmount", "nsenter", "ip"],
    "cephfs": ["ceph", "ceph-mon", "ceph-osd", "ceph-mds", "ceph-fuse", "nsenter", "ip"],
    "juicefs": ["juicefs", "redis-server", "nsenter", "ip"],
}


def make(kind, folder, **options):
    """A rig; its `mounts` are writable, and empty."""
    rig, words = RIGS[kind]
    made = rig(Path(folder), *words, **options)
    made.kind = kind
    try:
        clients.disk.wait_until(lambda: is_writable(made.mounts[0], made.counts_space), f"{kind} to take a file")
    except BaseException:
        made.close()
        raise
    return made


def is_writable(mount, counts_space=True):
    probe = mount / "probe"
    try:
        # Has no disk reported yet? Then a write would wait for one for minutes.
        if counts_space and os.statvfs(mount).f_bavail == 0:
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
