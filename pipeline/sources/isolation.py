"""Reading of formats whose reader is native code, in a process of its own: a damaged file may end that one, not this.

Polars reads a Parquet file whose lengths are damaged by asking for as much memory as they say, and a process that is
refused memory there aborts. One worker serves all files of a process, and is started again when a file has ended it.
"""

from __future__ import annotations

import atexit
import os
import pickle
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

import polars as pl

from pipeline.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pipeline.sources.batch import BatchRead, SourceFile


class Process:
    """A process that answers questions, both as pickles over its standard streams.

    Args:
        module: what it runs, with `python -m`.
        environment: variables that it has beside ours.
    """

    def __init__(self, module: str, environment: Mapping[str, str] | None = None) -> None:
        # Not multiprocessing: its workers import the caller's program again, which is not ours to run twice.
        path = os.pathsep.join([*filter(None, sys.path), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        self.owner = os.getpid()
        self.process = subprocess.Popen(  # noqa: S603 -- our own module, by our own interpreter
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # A native abort writes pages of addresses; what it means is told in the finding.
            stderr=subprocess.DEVNULL,
            env={**os.environ, **(environment or {}), "PYTHONPATH": path},
        )

    def ask(self, question: object) -> Iterator[tuple[Any, ...]]:
        """Yield the messages that answer a question.

        Raises:
            EOFError: the process has ended.
        """
        questions, answers = self._pipes()
        try:
            pickle.dump(question, questions)
            questions.flush()
        except BrokenPipeError as error:
            raise EOFError from error
        while True:
            message = pickle.load(answers)  # noqa: S301 -- our own worker's answer
            if message[0] == "end":
                return
            yield message

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        questions, answers = self.process.stdin, self.process.stdout
        if questions is None or answers is None:
            raise EOFError
        return questions, answers

    def close(self) -> int:
        """End the process and return its exit code."""
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                # It may have ended with a question in its pipe.
                with suppress(BrokenPipeError):
                    pipe.close()
        return self.process.wait()


running: list[Process] = []


def read(module: str, function: str, source: SourceFile) -> Iterator[BatchRead]:
    """Yield the batches that a reader yields in a process of its own.

    Raises:
        SourceError: as the reader, and where reading has ended the process.
        OSError: as the reader.
    """
    worker = _worker()
    is_done = False
    try:
        for kind, *facts in worker.ask((module, function, source)):
            if kind == "batches":
                yield from _apart(*facts)
            else:
                is_done = True
                raise _raised(kind, facts)
        is_done = True
    except (EOFError, pickle.UnpicklingError) as error:
        damaged = "reading it has ended the reader's process: the file is damaged; write it again, or remove it"
        raise SourceError("unreadable_file", damaged) from error
    finally:
        if not is_done:
            # It has died, or nobody wants the rest of its answer.
            end()


def _apart(bare: list[BatchRead], heights: list[int], buffer: bytes) -> Iterator[BatchRead]:
    samples = pl.read_ipc(buffer)
    start = 0
    for batch, height in zip(bare, heights, strict=True):
        yield replace(batch, samples=samples.slice(start, height))
        start += height


def _raised(kind: str, facts: list[Any]) -> Exception:
    """Return the error that a message tells of."""
    if kind == "error":
        told = facts[0]
        return SourceError(told["code"], told["message"], field=told["field"], value=told["value"])
    return OSError(*facts) if kind == "os" else RuntimeError(f"in the reader's process:\n{facts[0]}")


def end() -> None:
    """End the worker, if there is one."""
    while running:
        worker = running.pop()
        if worker.owner == os.getpid():
            worker.close()


def _worker() -> Process:
    # A forked process has its parent's list, but not its parent's worker.
    if running and running[0].owner != os.getpid():
        running.clear()
    if not running:
        running.append(Process("pipeline.sources.worker"))
    return running[0]


atexit.register(end)
