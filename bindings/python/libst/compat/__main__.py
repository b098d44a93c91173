"""python -m libst.compat program.py arguments...: run a program, unchanged, with libst in the place of safetensors.

As python itself it takes `-m module`, `-c code`, `-`, and a program on stdin. Python processes that it starts get
libst, too: by PYTHONPATH, and those that ignore that (`-E`) by the switch in libst-compat.pth, where that is installed.
"""

import io
import os
import pkgutil
import runpy
import sys
from importlib.machinery import SourceFileLoader
from types import ModuleType
from typing import Any, Union

from ._install import SHADOW, install

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(SHADOW)))  # the folder that libst is in

_USAGE = """usage: python -m libst.compat program.py arguments...
       python -m libst.compat -m module arguments...
       python -m libst.compat -c code arguments...
       python -m libst.compat [-] arguments... < program.py"""


def main() -> None:
    arguments = sys.argv[1:]
    first = arguments[0] if arguments else ""
    takes_one = first in ("-m", "-c")
    from_stdin = first in ("", "-")
    known = takes_one or from_stdin or not first.startswith("-")
    if not known or (takes_one and len(arguments) < 2) or (not arguments and sys.stdin.isatty()):
        sys.exit(_USAGE)
    install()
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([SHADOW] + ([inherited] if inherited else []))
    os.environ["LIBST_COMPAT"] = "1"
    # multiprocessing hands sys.path to those that it spawns, and they may be sent objects of libst. That may have been
    # found in the folder whose place the program's folder takes.
    sys.path.insert(1, SHADOW)
    if _ROOT not in sys.path[1:]:
        sys.path.append(_ROOT)
    if first == "-m":
        sys.argv = arguments[1:]
        sys.path[0] = os.getcwd()
        _run_module(arguments[1], True)
    elif takes_one or from_stdin:
        sys.argv = [first, *arguments[2 if takes_one else 1 :]]
        sys.path[0] = ""
        _run(arguments[1] if takes_one else sys.stdin.read(), "<string>" if takes_one else "<stdin>")
    else:
        sys.argv = arguments
        path = os.path.abspath(first)  # as python: the program may change its folder
        sys.path[0] = os.path.dirname(path)
        if pkgutil.get_importer(path) is not None:  # a folder or an archive
            sys.path[0] = path
            _run_module("__main__", False)
            return
        if path.endswith(".pyc"):
            runpy.run_path(path, run_name="__main__")
            return
        try:
            with io.open_code(path) as file:
                code = file.read()
        except OSError as error:
            print(
                f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}", file=sys.stderr
            )
            sys.exit(2)
        _run(code, path, __file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path))


def _run_module(name: str, alter_argv: bool) -> None:
    """As python does it: what else runpy has lets this module be the main one again at the end."""
    sys.modules["__main__"] = ModuleType("__main__")
    as_main: Any = runpy
    as_main._run_module_as_main(name, alter_argv)


def _run(code: Union[str, bytes], name: str, **attributes: Any) -> None:
    """As the main module, in the place of this one, for good: threads and exit handlers may come after its end."""
    module = ModuleType("__main__")
    module.__dict__.update(attributes)
    sys.modules["__main__"] = module
    exec(compile(code, name, "exec", dont_inherit=True), module.__dict__)


main()
