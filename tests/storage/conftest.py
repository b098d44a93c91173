"""Real kernels: libst on loop-mounted ext4, xfs and btrfs, on full disks, and on filesystems that fail.

    python -m pytest tests/storage            the bound of CI: a minute or two
    python -m pytest tests/storage --full     the same with many more states

$LIBST_LIBRARY is the library under test, $ST_BUILD the build tree with the programs of
meson.build; without that tree the programs are compiled here. Needs root.
"""

import fcntl
import functools
import os
import shutil
import subprocess
import tempfile
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import disk
import model
import pytest
import st_abi

HERE = Path(__file__).resolve().parent
SCRATCH = "libst-storage-"


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true", help="many more states: takes half an hour")
    parser.addoption("--seed", type=int, default=1, help="of everything that is chosen at random")


def pytest_configure(config):
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    config.told = Counter()
    config.why_not = disk.why_not()
    if not config.why_not:
        try:
            disk.enter_own_namespace()
            _remove_old_scratch()
        except OSError as e:
            config.why_not = f"mounting is not allowed here: {e}"


def pytest_collection_modifyitems(config, items):
    if config.why_not:
        for item in items:
            item.add_marker(pytest.mark.skip(reason=config.why_not))


class Bound:
    """How much to try."""

    def __init__(self, config):
        self.full = config.getoption("--full") or os.environ.get("ST_TEST_BOUND") == "full"
        self.seed = config.getoption("--seed")

    def __call__(self, quick, full):
        return full if self.full else quick


@pytest.fixture(scope="session")
def bound(request):
    return Bound(request.config)


@contextmanager
def _scratch():
    folder = Path(tempfile.mkdtemp(prefix=f"{SCRATCH}{os.getpid()}-", dir=_place_of_scratch()))
    folder.chmod(0o755)
    held = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield folder
    finally:
        disk.detach_below(folder)
        shutil.rmtree(folder)
        os.close(held)


@pytest.fixture
def scratch():
    """A folder for images, in memory where there is room."""
    with _scratch() as folder:
        yield folder


@pytest.fixture(scope="module")
def module_scratch():
    """The same, for mounts that several tests use."""
    with _scratch() as folder:
        yield folder


def _place_of_scratch():
    memory = "/dev/shm"
    has_room = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 1 << 30
    return memory if has_room else tempfile.gettempdir()


def _remove_old_scratch():
    """Of runs that were killed. A number says nothing of a run in another container: it holds its folder locked."""
    for folder in Path(_place_of_scratch()).glob(f"{SCRATCH}*"):
        pid = folder.name.removeprefix(SCRATCH).split("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists() and not _is_held(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_held(folder):
    fd = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


@pytest.fixture
def make_disk(scratch):
    """make_disk(kind, …): a Disk that is unmounted and detached at the end."""
    disks = []

    def make(kind, **options):
        folder = scratch / f"disk{len(disks)}"
        folder.mkdir()
        disks.append(disk.Disk(folder, kind, **options))
        return disks[-1]

    yield make
    for d in reversed(disks):
        d.close()


@pytest.fixture
def place(scratch):
    """A folder that any user may enter."""
    return scratch


@pytest.fixture
def deltas(scratch):
    """Where writers make their deltas: on no disk that is broken."""
    (scratch / "deltas").mkdir()
    return scratch / "deltas"


@pytest.fixture
def memory(scratch):
    """A tmpfs."""
    (scratch / "tmpfs").mkdir()
    with disk.mounted("none", scratch / "tmpfs", "tmpfs") as directory:
        yield directory


@pytest.fixture(params=["ext4", "xfs", "btrfs", "tmpfs"])
def any_disk(request, make_disk):
    """A mounted filesystem of each kind."""
    if request.param == "tmpfs":
        return request.getfixturevalue("memory")
    return make_disk(request.param).mount()


@pytest.fixture
def tell(request):
    """tell(count, what, detail): how much was tried, for the summary; the detail shows with -s."""

    def tell(count, what, detail=""):
        request.config.told[what] += count
        print(f"{count} {what}{': ' if detail else ''}{detail}")

    return tell


def pytest_terminal_summary(terminalreporter, config):
    if config.told:
        terminalreporter.section("tried on real kernels")
        for what, count in config.told.items():
            terminalreporter.line(f"{count:6} {what}")


@functools.cache
def _compiled():
    """The programs, compiled without Meson."""
    folder = Path(tempfile.mkdtemp(prefix="libst-storage-programs-"))
    fuse = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "fuse3"], check=True, capture_output=True, text=True
    ).stdout.split()
    common = ["cc", "-std=gnu11", "-O1", "-D_GNU_SOURCE"]
    large = [*common, "-D_FILE_OFFSET_BITS=64"]
    include = f"-I{st_abi.ROOT / 'capi/include'}"
    for command in (
        [*large, include, HERE / "writer.c", "-o", folder / "writer", st_abi.LIBRARY],
        [*large, HERE / "disk_recorder.c", "-o", folder / "disk_recorder", *fuse],
        [*large, HERE / "fault_fs.c", "-o", folder / "fault_fs", *fuse],
        [*large, HERE / "record_fs.c", "-o", folder / "record_fs", *fuse],
        [*common, "-shared", "-fPIC", HERE / "crash_at.c", "-o", folder / "crash_at.so", "-ldl"],
    ):
        subprocess.run(command, check=True)
    return folder


def pytest_unconfigure(config):
    if _compiled.cache_info().currsize:
        shutil.rmtree(_compiled(), ignore_errors=True)


class Programs:
    """The C programs of this folder."""

    def __init__(self, folder):
        self.folder = folder
        self.environment = {**os.environ, "LD_LIBRARY_PATH": str(st_abi.LIBRARY.parent)}

    def with_journals(self, kind):
        """The same, with writers that make journals of one kind wherever they can."""
        other = Programs(self.folder)
        other.environment = {**self.environment, "ST_JOURNAL": kind}
        return other

    def writer(self, path, crash=None, **options):
        """Start the writer; its lines come by its standard output. `crash`: the environment of crash_at.c."""
        arguments = [self.folder / "writer", path]
        for name, value in options.items():
            arguments += [f"--{name.replace('_', '-')}", str(value)]
        environment = self.environment
        if crash:
            environment = {**environment, "LD_PRELOAD": str(self.folder / "crash_at.so"), **crash}
        return subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment)

    def write(self, path, crash=None, **options):
        """The writer, to its end: its exit code and all it said."""
        with self.writer(path, crash, **options) as process:
            said, _ = process.communicate(timeout=120)
            return process.returncode, said.decode()

    def crash_while_applying(self, path, held, version, tear=True, lines="/dev/stdout", **options):
        """A writer commits a transaction and dies at its first write to the file itself: half of that write is
        done, or with tear=False nothing. What the file holds once the journal is recovered, given what it held: an
        undo record takes it back there."""
        crash = {"CRASH_AT": "1", "CRASH_DO": "tear" if tear else "exit", "CRASH_FILE": os.path.realpath(path)}
        options = {"tensors": "0,1,2,3,4,5", "first": version, "seed": version, "lines": lines, **options}
        code, said = self.write(path, crash, **options)
        assert code == 9, (code, said)
        assert len(model.journals(os.path.realpath(path))) == 1
        if model.waiting(os.path.realpath(path)) == ["undo"]:
            return tuple(held)
        for operation in model.History.of(said).operations:
            held = operation.after(held)
        return tuple(held)

    def crash_while_staging(self, path):
        """A writer dies with a journal that is not committed: its fifth call is the first write to it."""
        code, said = self.write(path, {"CRASH_AT": "5", "CRASH_DO": "exit-after"}, tensors="0,1,2,3,4,5", seed=1)
        assert code == 9, said
        assert len(model.journals(path)) == 1
        assert path.read_bytes() == model.file_bytes()

    def mount_fuse(self, name, *arguments, mountpoint, **options):
        return disk.mount_fuse(self.folder / name, arguments, mountpoint, self.environment, **options)


@pytest.fixture(scope="session")
def programs():
    built = st_abi.BUILD / "tests" / "storage"
    return Programs(built if (built / "writer").exists() else _compiled())
