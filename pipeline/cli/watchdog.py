"""The end of a statement that does not stop when it is told to."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pipeline.cli import console
from pipeline.errors import Exit

if TYPE_CHECKING:
    from collections.abc import Iterator

GRACE = 2.0
"""Seconds that an interrupted statement has to stop. A long call of one function does not look at interrupts."""


@contextmanager
def ending_after(seconds: float) -> Iterator[None]:
    """End the process if what runs inside takes longer than `seconds` and the grace.

    What runs inside reads only, so nothing is left half done.
    """
    timer = threading.Timer(seconds + GRACE, _end, [seconds])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end(seconds: float) -> None:
    console.say(f"error: the statement was stopped after {seconds:g} s; narrow it, or raise --timeout")
    os._exit(Exit.USAGE)
