"""The public names: what `import *` brings, and that no parameter hides a builtin."""

import builtins
import copy
import dataclasses
import inspect
import pickle

import libst
import numpy as np
import pytest
from conftest import TENSORS


def public_functions():
    """(name, function) of the package and of its public classes."""
    for name in [*libst.__all__, "open"]:
        value = getattr(libst, name)
        if inspect.isclass(value):
            if issubclass(value, libst.Error):
                yield name, value.__init__
                continue
            for attribute, member in vars(value).items():
                member = getattr(member, "__func__", member)
                if inspect.isfunction(member) and (not attribute.startswith("_") or attribute == "__init__"):
                    yield f"{name}.{attribute}", member
        elif inspect.isfunction(value):
            yield name, value


FUNCTIONS = dict(public_functions())


def test_the_functions_were_found():
    assert {"open", "load", "save", "File.transaction", "Transaction.put", "Writer.add", "IoInfo.__init__"} <= set(
        FUNCTIONS
    )


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_parameter_hides_a_builtin(name):
    assert not [p for p in inspect.signature(FUNCTIONS[name]).parameters if hasattr(builtins, p)]


def test_import_star_leaves_the_builtins_alone():
    names = {}
    exec("from libst import *", names)
    assert names["File"] is libst.File
    del names["__builtins__"]
    assert not [name for name in names if hasattr(builtins, name)]
    assert libst.open is not builtins.open and all(hasattr(libst, name) for name in libst.__all__)


@pytest.mark.parametrize(
    "kind", [value for value in vars(libst).values() if dataclasses.is_dataclass(value)], ids=lambda kind: kind.__name__
)
def test_help_tells_each_field(kind):
    described = [line.split(":")[0].strip() for line in kind.__doc__.splitlines()]
    assert [field.name for field in dataclasses.fields(kind) if field.name not in described] == []


COPIES = {
    "pickle": pickle.dumps,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("how", COPIES.values(), ids=COPIES)
def test_what_belongs_to_its_process_says_what_to_do_instead(model, tmp_path, how):
    with libst.open(model, "r+") as f, f.transaction() as t:
        with pytest.raises(TypeError, match="open the file in the worker and begin one there"):
            how(t)
        with pytest.raises(TypeError):
            how(f._handle)
        t.update("b", TENSORS["b"] * 2)  # as usable as before
    with libst.writer(tmp_path / "new") as w:
        with pytest.raises(TypeError, match="write the file there, or send the tensors"):
            how(w)
        w.add("a", np.ones(3))
    with libst.open_memory(model.read_bytes()) as f:
        with pytest.raises(TypeError, match="send its bytes, and open those"):
            how(f)
        with pytest.raises(TypeError, match="read the part, and send that"):
            how(f.slice("w"))
        assert f["b"].tolist() == (TENSORS["b"] * 2).tolist()


@pytest.mark.parametrize("how", [lambda f: pickle.loads(pickle.dumps(f)), copy.copy, copy.deepcopy])
def test_a_file_with_a_path_is_opened_anew(model, how):
    with libst.open(model, mapping="none") as f, how(f) as g:
        assert g is not f and g.path == f.path and g.io_info().mapping == "none"
        f.close()
        assert np.array_equal(g["w"], TENSORS["w"])
    with pytest.raises(libst.ClosedError):
        how(f)


WRONG = {
    **dict.fromkeys(["progress", "log", "report"], 5),
    **dict.fromkeys(["alignment", "header_reserve", "max_shard_size", "shard_grace", "size", "most_reads"], "64"),
    **dict.fromkeys(["lock_timeout", "io_threads", "block_size", "memory_limit"], "2"),
    "worker": (0,),
}
CASES = [
    (name, p)
    for name, f in FUNCTIONS.items()
    for p in inspect.signature(f).parameters
    if p in WRONG and "__init__" not in name
]


@pytest.mark.parametrize(("name", "parameter"), [*CASES, ("load", "lock_timeout"), ("load", "worker")])
def test_an_argument_of_a_wrong_type_is_told_by_its_name(model, tmp_path, name, parameter):
    new, before = tmp_path / "new", model.read_bytes()
    arguments = {
        "open_source": [lambda offset, buffer: None],
        "save": [new, {"a": TENSORS["b"][::2]}],
        "writer": [new],
        "diff": [model, model, new],
        "patch": [model, model],
        "merge": [model, [], new],
        "reshard": [model, new],
        "join": [model, new],
        "File.patch": [model],
        "File.read_many": [["b"]],
    }.get(name, [] if name.startswith("File.") else [model])
    others = {"open_source": {"size": 8}, "reshard": {"max_shard_size": 100}}.get(name, {})
    with libst.open(model, "r+") as f, pytest.raises(TypeError, match=f"^{parameter} (is|must)"):
        owner, _, method = name.rpartition(".")
        getattr(f if owner else libst, method)(*arguments, **{**others, parameter: WRONG[parameter]})
    assert model.read_bytes() == before and not new.exists()


@pytest.mark.parametrize("worker", [3, (0,), (0, 1, 2), ("0", "1"), "01"])
def test_a_worker_is_a_pair_of_numbers(model, worker):
    with pytest.raises(TypeError, match=r"^worker(\[0\])? is a (pair of numbers|number from 0)"):
        libst.open(model, worker=worker)


def test_numbers_of_numpy_are_numbers(model, tmp_path):
    with libst.open(model, io_threads=np.int64(2), worker=[0, 2], lock_timeout=np.float32(1)) as f:
        libst.save(tmp_path / "new", f, alignment=np.uint8(128))
        libst.load(model)
