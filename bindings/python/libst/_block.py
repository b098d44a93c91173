"""What the end of a `with` block does to what it is about: completes it, or after an exception drops it."""

from types import TracebackType
from typing import Any, Optional, TypeVar

_Self = TypeVar("_Self", bound="EndsWithBlock")


class EndsWithBlock:
    __slots__ = ()

    _handle: Any  # None: finished

    def _live(self) -> Any:
        raise NotImplementedError

    def _complete(self) -> None:
        raise NotImplementedError

    def abort(self) -> None:
        raise NotImplementedError

    def __enter__(self: _Self) -> _Self:
        self._live()
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        try:
            if kind is None and self._handle is not None:
                self._complete()
        finally:
            self.abort()
