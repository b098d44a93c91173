"""frameworks/torch_cases.py, where there is a torch."""

from pathlib import Path

from frameworks_rig import environment, run_pytest


def test_torch():
    folder = Path(__file__).parent
    run_pytest(environment(folder), folder, "frameworks/torch_cases.py", at_least=300)
