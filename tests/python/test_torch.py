"""frameworks/torch_cases.py, where there is a torch. torch.compile needs a newer one than that."""

import os
import subprocess
import sys
from pathlib import Path

import libst
import pytest
from frameworks_rig import environment, run_pytest


def test_torch():
    folder = Path(__file__).parent
    run_pytest(environment(folder), folder, "frameworks/torch_cases.py", at_least=300)


RULES = """
told = []
add = told.append
"""

BEFORE = "import torch._dynamo.trace_rules, torch._dynamo.{0}, libst"
AFTER = "import libst, torch._dynamo.trace_rules, torch._dynamo.{0}"
LOOKED_FOR = "import libst, importlib.util; importlib.util.find_spec('torch._dynamo.{0}'); import torch._dynamo.{0}"

TWICE = "import libst, importlib; importlib.reload(libst); import torch._dynamo.trace_rules, torch._dynamo.{0}"


@pytest.mark.parametrize(
    "imports", [BEFORE, AFTER, LOOKED_FOR, TWICE], ids=["before", "after", "looked for", "imported twice"]
)
@pytest.mark.parametrize("name", ["trace_rules", "skipfiles"])
def test_torch_compile_is_told_not_to_look_into_this_package(tmp_path, name, imports):
    """It fails on what it finds there: each compiled function that loads or saves a file would."""
    dynamo = tmp_path / "torch" / "_dynamo"
    dynamo.mkdir(parents=True)
    (dynamo / "trace_rules.py").write_text("")
    (dynamo / f"{name}.py").write_text(RULES)
    code = f"""{imports.format(name)}
import sys
assert set(torch._dynamo.{name}.told) == {{"libst"}}, torch._dynamo.{name}.told
assert not [finder for finder in sys.meta_path if type(finder).__module__.startswith("libst")]
"""
    package = str(Path(libst.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), package])}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)
