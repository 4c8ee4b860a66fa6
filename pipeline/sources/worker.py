"""The other side of `pipeline.sources.isolation`: reads files in a process of its own, as it is asked to on stdin.

A message is a pickle. A question is (module, function, source); the answer is any number of ("batches", batches without
their samples, samples of each, all samples as Arrow IPC), then ("end",) or ("error", facts). Small batches travel
together: to take a frame of some thousand rows apart and put it together takes as long as one of a hundred thousand.
The parent's end of stdin closes with the parent, so that this process never outlives it.
"""

from __future__ import annotations

import os
import pickle
import resource
import sys
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import IO, TYPE_CHECKING, Any

import polars as pl

from pipeline.errors import SourceError

if TYPE_CHECKING:
    from pipeline.sources.batch import BatchRead

Answer = Callable[[Any], Iterator[tuple[Any, ...]]]
_AT_LEAST = 4 * 2**30
_ROWS_AT_ONCE = 2**17


def serve(questions: IO[bytes], answers: IO[bytes], answer: Answer) -> None:
    """Answer until there are no more questions."""
    while True:
        try:
            question = pickle.load(questions)  # noqa: S301 -- our own parent's question
        except EOFError:
            return
        for message in answer(question):
            pickle.dump(message, answers, protocol=pickle.HIGHEST_PROTOCOL)
            answers.flush()


def read(question: tuple[str, str, object]) -> Iterator[tuple[Any, ...]]:
    """Yield the answer to the question for a file's batches."""
    module, function, source = question
    try:
        yield from _together(getattr(import_module(module), function)(source))
    except SourceError as error:
        facts = {"code": error.code, "message": error.message, "field": error.field, "value": error.value}
        yield "error", facts
    except OSError as error:
        yield "os", error.errno, error.strerror
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, MemoryError) as error:
        message = f"cannot be read ({reason(error)}); write it again, or remove it"
        yield "error", {"code": "unreadable_file", "message": message, "field": None, "value": None}
    except Exception:  # noqa: BLE001 -- a bug here is raised as one over there
        yield "bug", traceback.format_exc()
    else:
        yield ("end",)


def _together(batches: Iterator[BatchRead]) -> Iterator[tuple[Any, ...]]:
    waiting: list[BatchRead] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.samples.height
        if rows >= _ROWS_AT_ONCE:
            yield _message(waiting)
            waiting, rows = [], 0
    if waiting:
        yield _message(waiting)


def _message(batches: list[BatchRead]) -> tuple[Any, ...]:
    buffer = pl.concat([batch.samples for batch in batches], rechunk=False).write_ipc(None, compression="uncompressed")
    bare = [batch.without_samples() for batch in batches]
    return "batches", bare, [batch.samples.height for batch in batches], buffer.getvalue()


def reason(error: BaseException) -> str:
    """Return the first line of an error, or its kind."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__


def _limit_memory() -> None:
    """Keep a file that swells while it is read from taking the machine down: half of its memory, and at least 4 GiB."""
    half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    limit = max(half, _AT_LEAST)
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY or hard > limit:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def main(answer: Answer = read) -> None:
    """Serve on stdin and stdout; what a library prints goes to stderr."""
    _limit_memory()
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    serve(sys.stdin.buffer, answers, answer)


if __name__ == "__main__":
    main()
