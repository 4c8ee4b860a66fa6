"""The other side of `pipeline.recomputing.pieces`: does pieces of work in a process of its own, as it is asked to.

A message is a pickle. A question is a piece; the answer is ("work", what became of it), ("os", facts of an OSError) or
("bug", a traceback), then ("end",).
"""

from __future__ import annotations

import signal
import traceback
from typing import TYPE_CHECKING, Any

from pipeline.recomputing.pieces import Piece, done_here
from pipeline.sources import reading, worker

if TYPE_CHECKING:
    from collections.abc import Iterator


def answers(piece: Piece) -> Iterator[tuple[Any, ...]]:
    """Yield the answer to a piece."""
    try:
        yield "work", done_here(piece)
    except OSError as error:
        yield "os", error.errno, error.strerror, error.filename
    except Exception:  # noqa: BLE001 -- a bug here is raised as one over there
        yield "bug", traceback.format_exc()
    yield ("end",)


if __name__ == "__main__":
    # The terminal's interrupt goes to every process; what is to end is for the first one to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    reading.isolated = False
    worker.main(answers)
