"""Disks for the storage tests: sparse images on loop devices, made, mounted and taken away again.

Nothing outlives the tests, however they end: all mounts are in a mount namespace of this process, loop
devices detach themselves at their last close, FUSE programs die with us. These live outside of the
namespace: were one the last in it, its own exit would unmount what needs it, and hang.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)

MS_RDONLY, MS_REMOUNT, MS_NOATIME, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 1024, 4096, 16384, 1 << 18
_CLONE_NEWNS, _MNT_FORCE, _MNT_DETACH = 0x20000, 1, 2
_LOOP_CTL_GET_FREE, _LOOP_CONFIGURE, _AUTOCLEAR, _READ_ONLY, _DIRECT_IO = 0x4C82, 0x4C0A, 4, 1, 16
_BLKFLSBUF = 0x1261
_F_OFD_GETLK, _F_OFD_SETLK = 36, 37
_SHUTDOWN, _NO_LOG_FLUSH = 0x8004587D, 2
_FS_IOC_GETFLAGS, _FS_IOC_SETFLAGS, IMMUTABLE = 0x80086601, 0x40086602, 0x10

KINDS = ("ext4", "xfs", "btrfs")
# With the journals that they can have: see ST_JOURNAL in core/journal/README.md.
JOURNALS = (("ext4", "redo"), ("xfs", "redo"), ("xfs", "undo"), ("btrfs", "redo"), ("btrfs", "undo"))
SIZE = {"ext4": 64 << 20, "xfs": 300 << 20, "btrfs": 128 << 20}
MKFS = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"],
    "xfs": ["mkfs.xfs", "-q", "-K"],
    "btrfs": ["mkfs.btrfs", "-q", "-K"],
}

LONGEST_WAIT = 30.0  # for a mount to appear or a daemon to end: never reached unless something is broken


def wait_until(condition, what):
    deadline = time.monotonic() + LONGEST_WAIT
    while not (result := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not after {LONGEST_WAIT:.0f} s")
        time.sleep(0.002)
    return result


def _checked(result, what):
    if result != 0:
        e = ctypes.get_errno()
        raise OSError(e, f"{what}: {os.strerror(e)}")


_outside = None  # the namespace that we came from


def enter_own_namespace():
    """From here on what this process mounts is seen by it and its children only, and ends with them."""
    global _outside
    _outside = os.open("/proc/self/ns/mnt", os.O_RDONLY)
    _checked(_libc.unshare(_CLONE_NEWNS), "unshare")
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def mount(source, target, kind, flags=0, data=None):
    encode = lambda s: None if s is None else os.fsencode(s)  # noqa: E731
    result = _libc.mount(encode(source), encode(target), encode(kind), ctypes.c_ulong(flags), encode(data))
    _checked(result, f"mount {source} on {target} as {kind}")


def mount_fuse(program, arguments, mountpoint, environment, kind=None, options=""):
    """Mount what a FUSE program serves, and start it outside of our namespace. `kind`: what the mount table says."""
    fd = os.open("/dev/fuse", os.O_RDWR)
    try:
        all_options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other"
        all_options += f",{options}" if options else ""
        mount(program.name, mountpoint, kind or f"fuse.{program.name}", 0, all_options)
        return subprocess.Popen(
            [program, *map(str, arguments), f"/dev/fd/{fd}"],
            env=environment,
            pass_fds=[fd],
            preexec_fn=lambda: _checked(_libc.setns(_outside, _CLONE_NEWNS), "setns"),
        )
    finally:
        os.close(fd)


def umount(target):
    def tried():
        if _libc.umount2(os.fsencode(target), 0) == 0:
            return True
        e = ctypes.get_errno()
        if e == errno.EBUSY:  # a program that has just died may still hold it
            return False
        raise OSError(e, f"umount {target}: {os.strerror(e)}")

    wait_until(tried, f"umount {target}")


def mounts():
    """Where something is mounted, in the order of mounting."""
    return [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]


def wait_for_mount(target, process, log):
    """Until a FUSE program that mounts by itself has done so."""

    def is_mounted():
        if process.poll() is not None:
            raise RuntimeError(f"{process.args[0]} ended with {process.returncode}: {Path(log).read_text()[-500:]}")
        return str(target) in mounts()

    wait_until(is_mounted, f"{target} to be mounted")


def detach(target):
    """Unmount it whatever is open there; fine if nothing is mounted."""
    _libc.umount2(os.fsencode(target), _MNT_DETACH)


def abort(target):
    """End the calls that wait for a FUSE filesystem, which nothing else ends, and every later one."""
    _libc.umount2(os.fsencode(target), _MNT_FORCE)


def detach_below(folder):
    """Whatever is still mounted there after a test that failed."""
    for target in reversed([m for m in mounts() if m.startswith(f"{folder}/")]):
        detach(target)


@contextmanager
def mounted(source, target, kind, flags=0, data=None):
    mount(source, target, kind, flags, data)
    try:
        yield Path(target)
    finally:
        umount(target)


def set_read_ahead(device, nbytes):
    """How far the kernel reads ahead on this mount, and so how large its requests for the page cache are."""
    Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb").write_text(str(nbytes >> 10))


def cut_power(directory):
    """What reached the disk stays, the rest is gone; every later call there fails."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.ioctl(fd, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
    finally:
        os.close(fd)


def sync_filesystem(directory):
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _checked(_libc.syncfs(fd), "syncfs")
    finally:
        os.close(fd)


def read_line(pipe):
    """The next line that a program says; it is broken if none comes. Nothing has been read with a buffer before."""
    line = b""
    while not line.endswith(b"\n"):
        ready, _, _ = select.select([pipe], [], [], LONGEST_WAIT)
        assert ready, f"a program hangs, and has said {line!r}"
        letter = os.read(pipe.fileno(), 1)
        assert letter, f"a program has ended, and has said {line!r}"
        line += letter
    return line.decode()


def lock_range(file, offset, length):
    """An exclusive lock of this open description, as libst takes them."""
    fcntl.fcntl(file, _F_OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, offset, length, 0))


def is_locked(path):
    """Has anybody a lock on this file? A file that is gone has none."""
    try:
        with open(path, "rb+") as file:
            asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            return struct.unpack("hhqqi4x", fcntl.fcntl(file, _F_OFD_GETLK, asked))[0] != fcntl.F_UNLCK
    except FileNotFoundError:
        return False


@contextmanager
def immutable(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        before = struct.unpack("l", fcntl.ioctl(fd, _FS_IOC_GETFLAGS, struct.pack("l", 0)))[0]
        fcntl.ioctl(fd, _FS_IOC_SETFLAGS, struct.pack("l", before | IMMUTABLE))
        try:
            yield
        finally:
            fcntl.ioctl(fd, _FS_IOC_SETFLAGS, struct.pack("l", before))
    finally:
        os.close(fd)


def _begin_child(call, uid=None):
    """Its process id, and the pipe by which it tells its answer."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if uid is not None:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            said = {"answer": call()}
        except BaseException as e:
            said = {"failure": f"{type(e).__name__}: {e}"}
        os.write(write_end, json.dumps(said).encode())
        os._exit(0)
    os.close(write_end)
    return child, read_end


def _end_child(child, read_end):
    try:
        with os.fdopen(read_end) as pipe:
            ready, _, _ = select.select([pipe], [], [], LONGEST_WAIT)
            said = pipe.read() if ready else '{"failure": "it hangs"}'
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return json.loads(said or '{"failure": "it died"}')


def in_child(call, uid=None):
    """What call() answers (as JSON can say it) in its own process, perhaps of another user; killed if it hangs."""
    said = _end_child(*_begin_child(call, uid))
    assert "failure" not in said, said["failure"]
    return said["answer"]


def in_children(n, call):
    """The same of call(0) ... call(n - 1) in n processes side by side."""
    children = [_begin_child(lambda i=i: call(i)) for i in range(n)]
    said = [_end_child(*child) for child in children]
    assert not any("failure" in s for s in said), said
    return [s["answer"] for s in said]


def as_user(uid, call):
    return in_child(call, uid)


class Loop:
    """A loop device over a file. Detached when closed and no longer mounted. `direct_io`: past its page cache."""

    def __init__(self, backing, read_only=False, direct_io=False):
        self.fd = -1
        flags = _AUTOCLEAR | (_READ_ONLY if read_only else 0) | (_DIRECT_IO if direct_io else 0)
        file = os.open(backing, os.O_RDONLY if read_only else os.O_RDWR)
        try:
            wait_until(lambda: self._try(file, read_only, flags), "a free loop device")
        finally:
            os.close(file)

    def _try(self, file, read_only, flags):
        control = os.open("/dev/loop-control", os.O_RDWR)
        try:
            number = fcntl.ioctl(control, _LOOP_CTL_GET_FREE)
        finally:
            os.close(control)
        self.device = f"/dev/loop{number}"
        if not os.path.exists(self.device):
            os.mknod(self.device, 0o60600, os.makedev(7, number))
        fd = os.open(self.device, os.O_RDONLY if read_only else os.O_RDWR)
        info = bytearray(232)  # struct loop_info64
        struct.pack_into("I", info, 52, flags)
        try:
            fcntl.ioctl(fd, _LOOP_CONFIGURE, struct.pack("II", file, 0) + bytes(info) + bytes(64))
        except OSError as e:
            os.close(fd)
            if e.errno != errno.EBUSY:
                raise
            return False  # another process was faster
        self.fd = fd
        return True

    def forget_cache(self):
        """Read the backing file anew: it was changed from behind."""
        fcntl.ioctl(self.fd, _BLKFLSBUF)

    def close(self):
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def make_image(path, kind, size=None, options=()):
    with open(path, "wb") as f:
        f.truncate(size or SIZE[kind])
    subprocess.run([*MKFS[kind], *options, str(path)], check=True, stdout=subprocess.DEVNULL)
    return path


class Disk:
    """An image of a fresh filesystem, on a loop device, mounted and unmounted at will."""

    def __init__(self, folder, kind, size=None, options=(), backing=None, direct_io=False):
        self.kind = kind
        self.folder = Path(folder)
        self.image = backing or make_image(self.folder / f"{kind}.img", kind, size, options)
        self.mountpoint = self.folder / f"{kind}.mnt"
        self.mountpoint.mkdir(exist_ok=True)
        self.loop = Loop(self.image, direct_io=direct_io)
        self.is_mounted = False

    def mount(self, flags=0, data=None):
        mount(self.loop.device, self.mountpoint, self.kind, flags | MS_NOATIME, data)
        self.is_mounted = True
        return self.mountpoint

    def umount(self):
        umount(self.mountpoint)
        self.is_mounted = False

    def close(self):
        try:
            if self.is_mounted:
                self.umount()
        finally:
            self.loop.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def why_not():
    """What this machine lacks for these tests; empty if nothing."""
    if os.geteuid() != 0:
        return "needs root, to mount filesystems"
    for device in ("/dev/loop-control", "/dev/fuse"):
        if not os.access(device, os.R_OK | os.W_OK):
            return f"needs {device}"
    for program in (*(MKFS[kind][0] for kind in KINDS), "fusermount3"):
        if not shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin"):
            return f"needs {program}"
    known = Path("/proc/filesystems").read_text().split()
    for kind in (*KINDS, "fuse", "overlay", "tmpfs"):
        if kind not in known and subprocess.run(["modprobe", kind], stderr=subprocess.DEVNULL).returncode != 0:
            return f"needs a kernel with {kind}"
    return ""
