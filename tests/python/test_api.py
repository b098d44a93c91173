"""The public names: what `import *` brings, and that no parameter hides a builtin."""

import builtins
import copy
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
