"""SIGTERM and SIGINT: the first asks for an orderly end, the second ends at once."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_CODES = {signal.SIGTERM: Exit.TERMINATED, signal.SIGINT: Exit.INTERRUPTED}


class Ended(BaseException):
    """A signal has come, and the work ends where it is.

    Args:
        code: exit code of the signal.
    """

    def __init__(self, code: Exit) -> None:
        super().__init__(code)
        self.code = code


@dataclass
class Stop:
    """Whether an orderly end was asked for, and with which exit code."""

    code: Exit | None = None

    def requested(self) -> bool:
        """Return whether to end."""
        return self.code is not None

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Take a signal."""
        if self.code is not None:
            raise Ended(self.code)
        self.code = _CODES[signal.Signals(number)]


@contextmanager
def orderly() -> Iterator[Stop]:
    """Yield what the signals ask for, while the block runs."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop.handle) for number in _CODES}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def end_at_once(number: int, _frame: FrameType | None) -> None:
    """End where the program is; for verbs that write nothing."""
    raise Ended(_CODES[signal.Signals(number)])
