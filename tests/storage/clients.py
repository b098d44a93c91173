"""Real FUSE clients, each in a process that mounts by itself: what is common to them, sshfs, rclone.

Every process dies with us, and a mount ends with its process: nothing stays behind.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
from pathlib import Path

import disk
import st_abi

BUILT = Path(os.environ.get("LIBST_RIG") or st_abi.ROOT / "build" / "cache" / "rig" / "bin")
SFTP_SERVER = Path("/usr/lib/openssh/sftp-server")

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def program(name):
    """Where it is: built by install.sh, or else installed on this machine. None if neither."""
    built = BUILT / name
    return str(built) if built.exists() else shutil.which(name)


def lacking(*names):
    """Why a test with these programs cannot run; empty if it can."""
    missing = [name for name in names if not program(name)]
    return f"needs {', '.join(missing)}: see tests/setup.sh" if missing else ""


def start(command, log, environment=None, stdin=subprocess.DEVNULL, stdout=None):
    """A process that is killed when we are; what it says goes to the log."""
    with open(log, "ab") as output:
        return subprocess.Popen(
            list(map(str, command)),
            env={**os.environ, **(environment or {})},
            stdin=stdin,
            stdout=stdout or output,
            stderr=output,
            preexec_fn=lambda: _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
        )


def stop(process):
    process.terminate()
    try:
        process.wait(disk.LONGEST_WAIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(disk.LONGEST_WAIT)


class Client:
    """A folder mounted by a program; each mount begins with an empty cache."""

    def __init__(self, mountpoint, command, environment=None):
        self.mountpoint = Path(mountpoint)
        self.mountpoint.mkdir(exist_ok=True)
        self._command, self._environment = command, environment
        self._log = self.mountpoint.with_suffix(".log")
        self._process = None
        self.mount()

    @property
    def process(self):
        return self._process

    def _start(self):
        return start(self._command, self._log, self._environment)

    def mount(self):
        self._process = self._start()
        try:
            disk.wait_for_mount(self.mountpoint, self._process, self._log)
        except BaseException:
            self.close()
            raise

    def umount(self):
        disk.umount(self.mountpoint)
        self._process.wait(disk.LONGEST_WAIT)

    def remount(self):
        """Forget all that is cached."""
        self.umount()
        self.mount()

    def close(self):
        if self._process is None:
            return
        disk.abort(self.mountpoint)
        disk.detach(self.mountpoint)
        stop(self._process)
        self._process = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Sshfs(Client):
    """A folder of this machine through sshfs, joined to an sftp-server by two pipes: no sshd, no keys, no port."""

    def __init__(self, source, mountpoint, writable=False):
        self._only_reads = [] if writable else ["-R"]
        options = "passive" if writable else "passive,ro"
        super().__init__(mountpoint, [program("sshfs"), "-f", "-o", options, f":{source}", mountpoint])

    def _start(self):
        to_server, to_client = os.pipe(), os.pipe()
        try:
            self._server = start([SFTP_SERVER, *self._only_reads], self._log, stdin=to_server[0], stdout=to_client[1])
            return start(self._command, self._log, stdin=to_client[0], stdout=to_server[1])
        finally:
            for fd in (*to_server, *to_client):
                os.close(fd)

    def umount(self):
        super().umount()
        self._server.wait(disk.LONGEST_WAIT)

    def close(self):
        super().close()
        stop(self._server)


class Rclone(Client):
    """A folder of this machine through rclone, as it would mount a cloud's."""

    def __init__(self, source, mountpoint, how=("--read-only",)):
        command = [program("rclone"), "mount", "--config", "", *how, f":local:{source}", mountpoint]
        super().__init__(mountpoint, command)
