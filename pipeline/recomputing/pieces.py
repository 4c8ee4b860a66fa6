"""Pieces of work: some files, the settings, where results go. A piece is a value: whoever does it does the same.

Several processes do pieces side by side, each on its share of the cores. A damaged file may end such a process; its
piece is then done here, where the readers of such formats have a process of their own.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from queue import SimpleQueue
from threading import Lock
from typing import TYPE_CHECKING

from pipeline.recomputing.options import cores
from pipeline.recomputing.taking import take
from pipeline.recomputing.work import Work
from pipeline.sources.isolation import Process
from pipeline.store.layout import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pipeline.recomputing.decisions import Decision
    from pipeline.recomputing.options import Options
    from schemas.settings import Settings

MAX_BYTES, MAX_FILES = 2**25, 256
"""Size of a piece at most, by the bytes and the number of its files; one file is a piece, however large."""
WORTH_IT = 2**23
"""Bytes to read from which on processes are started: below it they would take longer to start than to work."""
DENSE = 16
"""A byte of a columnar file counts for so many of another one: it holds no tokens, and numbers packed together."""
_COLUMNAR = frozenset((".parquet", ".arrow", ".ipc", ".feather"))
_MEMORY = "narenas:{threads},dirty_decay_ms:1000,muzzy_decay_ms:0"
"""For the allocator that Polars brings along: as many pools of memory as threads that compute. With four a core, which
is what it has by default, what one thread frees another one does not find: a tenth more time and memory. What a chunk
has freed goes back to the machine after a second."""
_PIECES_EACH = 4
"""Pieces a process at least, where there is enough to do, so that none waits long for the last one."""


@dataclass(frozen=True)
class Piece:
    """Everything that is needed to read some files, to account for them, and to write their segments.

    Args:
        decisions: the files.
        settings: how their numbers are computed.
        options: of the recompute.
        root: directory of the ledger.
    """

    decisions: tuple[Decision, ...]
    settings: Settings
    options: Options
    root: Path


def done_here(piece: Piece) -> Work:
    """Return what became of a piece."""
    work = Work(Layout(piece.root), piece.options)
    for _ in work.read_and_account(take(list(piece.decisions), piece.options), piece.settings):
        pass
    return work


def pieces(decisions: Sequence[Decision], settings: Settings, options: Options, root: Path) -> list[Piece]:
    """Return the files in pieces, in their order; none where processes of their own would not be worth it."""
    sizes = [_size(decision) for decision in decisions]
    if options.jobs <= 1 or len(decisions) <= 1 or sum(sizes) < WORTH_IT:
        return []
    # Callables stay here.
    sent = replace(options, stop=bool, progress=None, jobs=1)
    limit = min(MAX_BYTES, sum(sizes) // (options.jobs * _PIECES_EACH))
    found: list[list[Decision]] = [[]]
    size = 0
    for decision, own in zip(decisions, sizes, strict=True):
        if found[-1] and (size + own > limit or len(found[-1]) >= MAX_FILES):
            found.append([])
            size = 0
        found[-1].append(decision)
        size += own
    return [Piece(tuple(some), settings, sent, root) for some in found]


def _size(decision: Decision) -> int:
    file = decision.file
    size = file.stamp.size if file.stamp is not None else 0
    return size * DENSE if file.path.suffix in _COLUMNAR else size


def done(some: Sequence[Piece], options: Options) -> Iterator[Work]:
    """Yield what became of each piece, in their order, several being done at a time; fewer when told to stop."""
    idle: SimpleQueue[Process] = SimpleQueue()
    # One at a time: the process that reads what may be damaged answers one question after the other.
    here = Lock()
    processes = [_process(options.jobs) for _ in range(min(options.jobs, len(some)))]
    for process in processes:
        idle.put(process)

    def do(piece: Piece) -> Work | None:
        if options.stop():
            return None
        process = idle.get()
        try:
            return _done_by(process, piece)
        except EOFError:
            # It is gone, and with it what it was at; the others go on.
            process.close()
            process = _process(options.jobs)
            with here:
                return done_here(piece)
        finally:
            idle.put(process)

    with ThreadPoolExecutor(len(processes)) as pool:
        try:
            yield from filter(None, pool.map(do, some))
        finally:
            pool.shutdown(cancel_futures=True)
            while not idle.empty():
                idle.get().close()


def _done_by(process: Process, piece: Piece) -> Work:
    ((kind, *facts),) = process.ask(piece)
    if kind == "work":
        work: Work = facts[0]
        return work
    if kind == "os":
        raise OSError(*facts)
    raise RuntimeError(f"in a process of the recompute:\n{facts[0]}")


def _process(jobs: int) -> Process:
    threads = max(1, cores() // jobs)
    return Process(
        "pipeline.recomputing.piece_worker",
        {"POLARS_MAX_THREADS": str(threads), "_RJEM_MALLOC_CONF": _MEMORY.format(threads=threads)},
    )
