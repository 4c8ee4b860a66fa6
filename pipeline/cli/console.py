"""What the command says: the answer on stdout, everything else on stderr."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def say(text: str) -> None:
    """Write a line to stderr."""
    print(text, file=sys.stderr)


def answer(text: str) -> None:
    """Write the answer to stdout."""
    sys.stdout.write(text if text.endswith("\n") or not text else text + "\n")


@contextmanager
def progress(label: str) -> Iterator[Callable[[int, int], None] | None]:
    """Yield a function to call with (done, total), which draws a bar; null where stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
