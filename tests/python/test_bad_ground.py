"""Places that lack what programs take for granted: libst goes on without it, or says what to do."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import crash
import libst
import numpy as np
import pytest
from forbid import MACHINES

# What a program does with a model: changes in place, by a new file, recovery, reading.
LIFE = """
import libst, numpy
libst.save("f.safetensors", {"a": numpy.arange(100000.0), "b": numpy.ones(3)})
with libst.open("f.safetensors", "r+") as f:
    f.update("a", f["a"] * 2)
    with f.transaction() as t:
        t.delete("b")
        t.put("c", numpy.zeros((2, 2)))
libst.recover("f.safetensors")
loaded = libst.load("f.safetensors")
assert sorted(loaded) == ["a", "c"] and (loaded["a"] == numpy.arange(100000.0) * 2).all()
config = libst.show_config("dicts")
"""

FORBIDDEN = """
import errno, sys
from forbid import ERRNO, KILL, NUMBERS, forbid
ours = [name for name in NUMBERS if not name.startswith("io_uring")]
forbid({name: KILL for name in NUMBERS if name not in ours} | {name: ERRNO | int(sys.argv[1]) for name in ours})
"""


def python(*words, **options) -> str:
    done = subprocess.run(
        [sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def elsewhere(tmp_path: Path, mounts: str, program: str) -> str:
    """Run a program in tmp_path after `mounts`, which this process does not see."""
    enter = ["unshare", "--mount"] + (["--user", "--map-root-user"] if os.geteuid() else [])
    if not shutil.which("unshare") or subprocess.run([*enter, "true"], capture_output=True).returncode:
        pytest.skip("no namespace of mounts can be made here")
    script = f'mount --make-rprivate /\n{mounts}\ncd "$PWD"\nexec "$@"'
    done = subprocess.run(
        [*enter, "sh", "-euc", script, "sh", sys.executable, "-c", program],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_without_proc(tmp_path):
    elsewhere(tmp_path, "mount -t tmpfs none /proc", LIFE + "assert config['/proc'].startswith('no; ')")


def test_on_a_root_that_cannot_be_written(tmp_path):
    libst.save(tmp_path / "f.safetensors", {"a": np.arange(100000.0)})
    program = """
import libst, numpy
assert libst.load("f.safetensors")["a"][-1] == 99999
with libst.open("f.safetensors") as f:
    assert f["a"][7] == 7 and f.io_info().mapping == "shared"
for change in (lambda: libst.open("f.safetensors", "r+"), lambda: libst.save("g.safetensors", {"a": numpy.ones(3)})):
    try:
        change()
    except OSError as e:
        print(type(e).__name__, e)
"""
    said = elsewhere(tmp_path, 'mount --bind "$PWD" "$PWD"; mount -o remount,bind,ro "$PWD"', program)
    assert said.count("Read-only file system") == 2, said


@pytest.mark.skipif(platform.machine() not in MACHINES, reason="knows no numbers of calls here")
@pytest.mark.parametrize("error", ["ENOSYS", "EPERM"])
def test_in_a_sandbox_that_forbids_calls_and_kills_for_io_uring(tmp_path, error):
    number = {"ENOSYS": 38, "EPERM": 1}[error]
    ends = "assert all(config[n].startswith('no; ') for n in ours if n in config), config; print(config['io_uring'])"
    assert python("-c", FORBIDDEN + LIFE + ends, str(number), cwd=tmp_path) == "not used\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_as_a_user_without_a_home_or_a_name():
    nobody = 54321
    there = {name: value for name, value in os.environ.items() if name not in ("HOME", "USER", "LOGNAME")}
    who = f"import os; os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})\n"
    with tempfile.TemporaryDirectory() as folder:  # pytest's lie below one that only its user enters
        os.chown(folder, nobody, nobody)
        python("-c", f"import libst.compat.numpy, numpy\n{who}{LIFE}", cwd=folder, env=there)


def test_where_nothing_may_be_executed(tmp_path):
    """A model lies there like anywhere; a library there cannot be loaded, and the import says so."""
    there = tmp_path / "noexec"
    there.mkdir()
    program = f"""
import os, shutil
os.chdir("noexec")
{LIFE}
from libst._library import path
import subprocess, sys
if os.path.isabs(path):
    shutil.copy(path, "libst.so.2")
    named = os.environ | {{"LIBST_LIBRARY": os.path.abspath("libst.so.2")}}
    done = subprocess.run([sys.executable, "-c", "import libst"], env=named, capture_output=True, text=True)
    assert done.returncode == 1 and "is mounted noexec" in done.stderr, done.stderr
"""
    elsewhere(tmp_path, "mount -t tmpfs -o noexec none noexec", program)


LIMITED = """
import errno, resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # as in a program that never heard of it
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
import libst, numpy
try:
    with libst.open(sys.argv[1], "r+") as f, f.transaction() as t:
        t.update("a", numpy.full(1, 2.0), at=slice(99999, None))
        t.update("b", numpy.full(3, 2.0))
except libst.Error as e:
    assert "RLIMIT_FSIZE" in str(e), e
    print(e.status.name, errno.errorcode[e.os_errno])
"""


NO_NEW_FILE = """
import errno, os, resource, signal, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
import libst, numpy

def rename():
    with libst.open("f.safetensors", "r+") as f, f.transaction() as t:
        t.rename("a", "c")

def write():
    with libst.writer("g.safetensors") as w:
        for name in "abc":  # its length is not known before
            w.add(name, numpy.ones(20_000))

def write_nothing():
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    libst.writer("g.safetensors").finish()

calls = [
    rename,
    lambda: libst.compact("f.safetensors"),
    lambda: libst.save("g.safetensors", {"a": numpy.ones(100_000)}),
    lambda: libst.join("f.safetensors", "g.safetensors"),
    write,
    write_nothing,
]
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # ends the process
for call in calls:
    try:
        call()
    except libst.Error as e:
        assert e.os_errno == errno.EFBIG and "RLIMIT_FSIZE" in str(e), e
        print(e.status.name, *sorted(os.listdir()))
"""


def test_where_no_new_file_may_be_so_long(tmp_path):
    libst.save(tmp_path / "f.safetensors", {"a": np.arange(100000.0), "b": np.ones(3)})
    assert python("-c", NO_NEW_FILE, cwd=tmp_path) == "IO f.safetensors\n" * 6


NO_STEPS = """
import errno, os, resource, signal
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # ends the process
import libst
try:
    libst.diff("f.safetensors", "g.safetensors", "d")
except libst.Error as e:
    assert e.os_errno == errno.EFBIG and "RLIMIT_FSIZE" in str(e), e
    print(e.status.name, *sorted(os.listdir()))
"""


def test_where_the_steps_of_a_delta_may_not_be_so_long(tmp_path):
    """They lie in a file of their own before the delta is begun."""
    r = np.random.default_rng(1)
    weights = r.integers(0, 1 << 16, 2_000_000, np.uint16)
    libst.save(tmp_path / "f.safetensors", {"w": weights})
    weights[::10] ^= r.integers(1, 1 << 16, 200_000, np.uint16)
    libst.save(tmp_path / "g.safetensors", {"w": weights})
    assert python("-c", NO_STEPS, cwd=tmp_path) == "IO f.safetensors g.safetensors\n"


BOTH = """
import sys
import libst, numpy
with libst.open(sys.argv[1], "r+") as f, f.transaction() as t:
    t.update("a", numpy.full(100000, 3.0))
    t.update("b", numpy.full(3, 3.0))
"""


@pytest.mark.parametrize("shards", [1, 2])
def test_where_no_file_may_be_so_long(tmp_path, shards):
    """What lies behind the limit is not begun to be changed, and no signal ends the process."""
    model = shard = tmp_path / "f.safetensors"
    libst.save(shard, {"a": np.arange(100000.0), "b": np.ones(3)})
    if shards == 2:
        libst.save(shard, {"a": np.arange(100000.0)})
        libst.save(tmp_path / "g.safetensors", {"b": np.ones(3)})
        model = tmp_path / "m.safetensors.index.json"
        model.write_text(json.dumps({"weight_map": {"a": "f.safetensors", "b": "g.safetensors"}}))
    assert python("-c", LIMITED, model, cwd=tmp_path) == "IO EFBIG\n"
    with libst.open(model) as f:
        assert f["a"][7] == 7 and f["b"].tolist() == [1, 1, 1]
    env = os.environ | {"LD_PRELOAD": str(crash._shim()), "CRASH_AT": os.path.realpath(shard)}
    assert subprocess.run([sys.executable, "-c", BOTH, model], env=env).returncode == 7
    assert python("-c", LIMITED, model, cwd=tmp_path) == "NEEDS_RECOVERY EFBIG\n"
    with libst.open(model) as f:
        assert f["a"][7] == 3 and f["b"].tolist() == [3, 3, 3]


CUT = """
import mmap, os
import libst, numpy
libst.save("f.safetensors", {"a": numpy.ones(1000), "b": numpy.arange(1000.0), "c": numpy.ones(100_000)})
with open("bytes", "wb") as there:
    there.truncate(1 << 20)
there = numpy.memmap("bytes", dtype=numpy.float64, mode="r")
os.truncate("bytes", 0)
few, many = there[4096:5096], there[:100_000]
with libst.open("f.safetensors", "r+") as f:
    def copied(name, of, **how):
        with f.transaction(copy=True, **how) as t:
            t.put(name, of)
    changes = (
        lambda: f.update("b", few),
        lambda: f.update("c", many),
        lambda: f.update("a", few, at=slice(1000)),
        lambda: copied("b", few),
        lambda: libst.save("g.safetensors", {"b": few}),
        lambda: libst.save("g.safetensors", {"c": many}),
    )
    for change in changes:
        try:
            change()
        except OSError as e:
            print(e.status.name, str(e).split(":")[-1])
    assert f["b"].tolist() == list(range(1000))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not tell of such memory")
def test_memory_that_is_gone_is_no_signal(tmp_path):
    said = python("-c", CUT, cwd=tmp_path)
    assert said == "IO  the memory that they were in is gone\n" * 6, said


BELOW = """
import json
os.mkdir("sub")
libst.save("sub/f.safetensors", {"b": numpy.ones(3)})
os.symlink("sub/f.safetensors", "linked.safetensors")
of_shards = {"weight_map": {"a": "f.safetensors", "b": "linked.safetensors", "c": "f.safetensors"}}
open("m.safetensors.index.json", "w").write(json.dumps(of_shards))
for path in ("sub/f.safetensors", "linked.safetensors", "m.safetensors.index.json"):
    with libst.open(path, "r+") as f:
        f.update("b", f["b"] + 1)
        with f.transaction() as t:
            t.metadata("note", path)
        f.refresh()
        assert f.metadata["note"] == path
    libst.recover(path)
libst.save("linked.safetensors", {"b": numpy.zeros(3)})
libst.save("many.safetensors", {f"t{i}": numpy.full(3, i) for i in range(300)})
libst.reshard("many.safetensors", "shards", 24)
with libst.open("shards", "r+") as f:  # more shards than stay open
    for _ in range(2):
        assert all((f[f"t{i}"] == i).all() for i in range(300))
    with f.transaction() as t:
        t.update("t7", f["t7"] * 0)
        t.delete("t8")
        t.put("t9", numpy.zeros(7))
    with f.transaction(new_names=True) as t:
        t.delete("t6")
    f.refresh()
    assert not f["t7"].any() and len(f["t9"]) == 7 and len(f) == 298
libst.join("shards", "joined.safetensors")
libst.diff("many.safetensors", "shards", "changes")
libst.patch("many.safetensors", "changes", reverse="back")
assert len(libst.open("joined.safetensors", deltas=["back"])) == 300
assert libst.verify("shards") == []
os.mkdir("aside")
with libst.open("sub/f.safetensors", "r+") as f:
    os.rename("sub", "aside/sub")
    try:
        f.update("b", f["b"] + 1)
    except libst.Error as e:
        print(e.status.name)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_below_a_folder_that_its_user_may_not_search():
    with tempfile.TemporaryDirectory() as folder:  # only root enters it
        inside = Path(folder, "inside")
        inside.mkdir()
        os.chown(inside, 54321, 54321)
        who = "import os; os.setgroups([]); os.setgid(54321); os.setuid(54321)\n"
        program = f"import libst.compat.numpy, numpy\n{who}{LIFE}{BELOW}"
        assert python("-c", program, cwd=inside) == "FILE_CHANGED\n"


ELSEWHERE = """
import os, subprocess, libst, numpy
here, other = os.path.abspath("here"), os.path.abspath("other")
for folder, name in ((here, "outside"), (other, "inside")):
    libst.save(f"{folder}/f.safetensors", {name: numpy.ones(3)})
mounts = ["unshare", "--mount", "sh", "-ec", f"mount --bind {other} {here}; echo; exec cat"]
with subprocess.Popen(mounts, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as there:
    there.stdout.readline()
    folder = os.open(f"/proc/{there.pid}/root{here}", os.O_RDONLY)
    for path in (f"/proc/{there.pid}/root{here}", f"/proc/{there.pid}/root/{here}/../here", f"/proc/self/fd/{folder}"):
        path += "/f.safetensors"
        before = open(path, "rb").read()
        with libst.open(path, "r+") as f:
            assert list(f) == ["inside"], path
            f.update("inside", f["inside"] + 1)
            with f.transaction() as t:
                t.metadata("note", path)
            f.refresh()
        assert libst.open(path).metadata["note"] == path and open(path, "rb").read() != before
        libst.save(path, {"inside": numpy.ones(3)})
        assert list(libst.load(f"{here}/f.safetensors")) == ["outside"]
    os.chdir(folder)
    assert list(libst.load("f.safetensors")) == ["inside"]
    there.stdin.close()
os.chdir(here)
subprocess.run(["mount", "--bind", other, here], check=True)
assert list(libst.load("f.safetensors")) == ["outside"] and list(libst.load(f"{here}/f.safetensors")) == ["inside"]
"""


def test_a_path_that_means_another_file_to_another_process(tmp_path):
    """What /proc tells of a process in a container is followed by the kernel, and never read as a path of our own."""
    for name in ("here", "other"):
        (tmp_path / name).mkdir()
    elsewhere(tmp_path, ":", ELSEWHERE)


COVERED = """
import os, subprocess, libst, numpy
here, other = os.path.abspath("here"), os.path.abspath("other")
def mount(what, over):
    subprocess.run(["mount", "--bind", what, over], check=True)
for folder, name in ((here, "outside"), (other, "inside")):
    libst.save(f"{folder}/f.safetensors", {name: numpy.ones(3)})
libst.save("many.safetensors", {f"t{i}": numpy.full(1000, i) for i in range(300)})
libst.reshard("many.safetensors", "here/shards", 8000)
os.chdir(here)
mount(other, here)
with libst.open("f.safetensors", "r+") as f:
    f.update("outside", f["outside"] + 1)
    with f.transaction() as t:
        t.metadata("note", "here")
    f.refresh()
assert libst.open("f.safetensors").metadata["note"] == "here"
libst.save("f.safetensors", {"outside": numpy.ones(3)})
for path in ("shards", "/proc/self/cwd/shards"):
    with libst.open(path, "r+", mapping="none") as f:  # more shards than stay open
        for _ in range(2):
            assert all((f.read(f"t{i}") == i).all() for i in range(300))
        with f.transaction() as t:
            t.update("t7", f.read("t7"))
            t.metadata("note", path)
    assert libst.verify(path) == []
assert list(libst.load(f"{here}/f.safetensors")) == ["inside"] and os.listdir(here) == ["f.safetensors"]
subprocess.run(["umount", here], check=True)
mount(here, here)  # now the working directory is the same folder on another mount
mount(f"{other}/f.safetensors", f"{here}/f.safetensors")
assert list(libst.load("f.safetensors")) == ["outside"] and list(libst.load(f"{here}/f.safetensors")) == ["inside"]
"""


def test_a_working_directory_that_something_is_mounted_over(tmp_path):
    for name in ("here", "other"):
        (tmp_path / name).mkdir()
    elsewhere(tmp_path, ":", COVERED)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no descriptor has a path here")
def test_shards_by_a_descriptor_that_is_closed(tmp_path):
    """As programs open what lies in a folder that they have open. More shards than stay open are opened anew."""
    libst.save(tmp_path / "many", {f"t{i}": np.full(1000, i) for i in range(300)})
    libst.reshard(tmp_path / "many", tmp_path / "shards", 8000)
    folder = os.open(tmp_path / "shards", os.O_RDONLY)
    with libst.open(f"/proc/self/fd/{folder}", mapping="none") as f:
        os.close(folder)
        for _ in range(2):
            assert all((f.read(f"t{i}") == i).all() for i in range(300))


def test_a_file_that_is_a_mount_of_its_own(tmp_path):
    """As `docker -v file:file` makes them: patched like any, and never replaced."""
    for name in ("outside", "inside"):
        (tmp_path / name).mkdir()
        libst.save(tmp_path / name / "f.safetensors", {"a": np.ones(3), "b": np.ones(3)})
    program = """
import os
import libst, numpy
with libst.open("inside/f.safetensors", "r+") as f:
    f.update("a", f["a"] * 2)
assert libst.load("outside/f.safetensors")["a"].tolist() == [2, 2, 2]
def put():
    with libst.open("inside/f.safetensors", "r+") as f, f.transaction() as t:
        t.put("c", numpy.ones(3))
def update():
    with libst.open("inside/f.safetensors", "r+") as f:
        f.update("a", f["a"] * 2)
def said_of(change):
    try:
        change()
    except libst.Error as e:
        assert "mount its folder" in str(e) and ".st-tmp" not in str(e), e
        print(e.status.name)
said_of(put)
said_of(lambda: libst.save("inside/f.safetensors", {"a": numpy.ones(3)}))
libst.save("outside/f.safetensors", {"a": numpy.zeros(3)})
said_of(update)
"""
    said = elsewhere(tmp_path, "mount --bind outside/f.safetensors inside/f.safetensors", program)
    assert said == "UNSUPPORTED\nUNSUPPORTED\nFILE_CHANGED\n"


@pytest.mark.parametrize("name", ["m-2.safetensors", "model.safetensors.index.json"])
def test_shards_with_a_mount_of_its_own(tmp_path, name):
    """What could not end is refused before it begins. A change that replaces none but other files goes on."""
    for folder in ("outside", "inside"):
        (tmp_path / folder).mkdir()
        for n in (1, 2, 3):
            libst.save(tmp_path / folder / f"m-{n}.safetensors", {f"a{n}": np.ones(3), f"b{n}": np.ones(3)})
        names = {f"{tensor}{n}": f"m-{n}.safetensors" for n in (1, 2, 3) for tensor in "ab"}
        index = {"metadata": {}, "weight_map": names}
        (tmp_path / folder / "model.safetensors.index.json").write_text(json.dumps(index))
    program = """
import os, sys
import libst, numpy
name = os.environ["MOUNTED"]
before = {n: open("inside/" + n, "rb").read() for n in os.listdir("inside")}
def change(*numbers):
    with libst.open("inside", "r+") as f, f.transaction() as t:
        for n in numbers:
            t.delete(f"a{n}")
try:
    change(1, 2, 3)
except libst.Error as e:
    assert f"'{os.getcwd()}/inside/{name}' is mounted there by itself" in str(e), e
    print(e.status.name)
assert {n: open("inside/" + n, "rb").read() for n in os.listdir("inside")} == before
with libst.open("inside", "r+") as f, f.transaction() as t:
    t.update("a1", numpy.zeros(3))
    t.update("b2", numpy.zeros(3))
if name.startswith("m-"):
    change(1, 3)
    assert sorted(libst.open("inside")) == ["a2", "b1", "b2", "b3"]
"""
    mounts = f"mount --bind outside/{name} inside/{name}; export MOUNTED={name}"
    assert elsewhere(tmp_path, mounts, program) == "UNSUPPORTED\n"


STICKY = """
import logging, os
import libst, numpy
logging.basicConfig(format="%(message)s")
os.setgroups([]); os.setgid(54321); os.setuid(54321)
try:
    libst.save("f.safetensors", {"a": numpy.ones(3)})
except PermissionError as e:
    print(e)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_in_a_folder_that_lets_only_owners_replace():
    """What refuses is named, and not the new file, which is removed by then."""
    with tempfile.TemporaryDirectory() as folder:
        libst.save(Path(folder, "f.safetensors"), {"a": np.ones(3)})
        os.chmod(folder, 0o1777)
        os.chmod(Path(folder, "f.safetensors"), 0o666)
        said = python("-c", STICKY, cwd=folder)
        where = os.path.realpath(folder)
        assert f"cannot rename a new file to '{where}/f.safetensors': Operation not permitted; it or" in said, said
        assert "belongs" not in said, said
