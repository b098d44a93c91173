"""python -m libst.compat program.py arguments...: run a program, unchanged, with libst in the place of safetensors.

Also `-m module arguments...`. Python processes that it starts get libst, too, by PYTHONPATH.
"""

import os
import runpy
import sys

from ._install import SHADOW, install

_USAGE = "usage: python -m libst.compat program.py arguments...\n       python -m libst.compat -m module arguments..."


def main() -> None:
    arguments = sys.argv[1:]
    as_module = arguments[:1] == ["-m"]
    arguments = arguments[1:] if as_module else arguments
    if not arguments or (arguments[0].startswith("-") and not as_module):
        sys.exit(_USAGE)
    install()
    package = os.path.dirname(os.path.dirname(os.path.dirname(SHADOW)))  # where libst is, for the children
    inherited = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join([SHADOW, os.path.dirname(package)] + ([inherited] if inherited else []))
    sys.path.insert(1, SHADOW)  # multiprocessing hands sys.path to those that it spawns
    sys.argv = arguments
    if as_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(arguments[0]))
        runpy.run_path(arguments[0], run_name="__main__")


main()
