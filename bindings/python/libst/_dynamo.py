"""Keeps torch.compile out of this package: a compiled function that calls it runs it as it is.

Dynamo, which is inside torch.compile, follows calls into the sources of a package, and runs them on tensors without
memory. Ours ask for addresses, so it would fail there. It is told once it is imported, as that takes it seconds.
"""

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Optional

_RULES = ("torch._dynamo.trace_rules", "torch._dynamo.skipfiles")  # the second before torch 2.3


class _Finder:
    """Leaves it to the others to find the module of Dynamo's rules, and tells that of this package when it has run."""

    def find_spec(
        self, fullname: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[ModuleSpec]:
        if fullname not in _RULES:
            return None
        finders = list(sys.meta_path)
        if self in finders:  # those before it may leave it to others, too
            del finders[: finders.index(self) + 1]
        others = [finder for finder in finders if hasattr(finder, "find_spec")]
        spec = next(filter(None, (finder.find_spec(fullname, path, target) for finder in others)), None)
        if spec is not None and spec.loader is not None:
            run: Callable[[ModuleType], None] = getattr(spec.loader, "exec_module")  # noqa: B009

            def run_and_tell(module: ModuleType) -> None:
                run(module)
                if _tell(module):
                    with suppress(ValueError):
                        sys.meta_path.remove(self)

            vars(spec.loader)["exec_module"] = run_and_tell
        return spec


def _tell(rules: ModuleType) -> bool:
    """Whether it could be told: torch 2.2 has both modules, and the first takes nothing."""
    add = getattr(rules, "add", None)
    if add is None:
        return False
    add(__package__)
    return True


def keep_out() -> None:
    """For the process, once."""
    if not any(_tell(sys.modules[name]) for name in _RULES if name in sys.modules):
        sys.meta_path.insert(0, _Finder())
