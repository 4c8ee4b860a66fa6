"""Recomputes as processes that start at once and can be killed, a trainer that writes meanwhile, a reader that polls.

The command is imported once, in a process that does nothing else, and every recompute is a fork of it: that costs
milliseconds instead of a second. Nothing is computed in that process, so that the engines' thread pools, which would
not survive a fork, start in the children. It takes one JSON request a line and answers with one JSON line.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Self

import duckdb

from tests.fixture_dumps import FIXTURES
from tests.unattended.ledgers import disagreements, sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from pipeline.sources.batch import BatchRead, SourceFile

ROOT = Path(__file__).parents[2]
_PAUSE = 0.001


class Recomputes:
    """The process that forks recomputes."""

    def __init__(self, folder: Path) -> None:
        self.stderr = folder
        program = "from tests.unattended.harness import serve; serve()"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, text=True, **pipes)  # type: ignore[call-overload]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()

    def __call__(
        self, *arguments: object, after: float | None = None, number: int = signal.SIGKILL, **more: Any
    ) -> int:
        """Run a recompute and return its exit code, negative for a signal.

        Args:
            arguments: of `rollout-ledger recompute`.
            after: seconds after which it is sent a signal; null: it is left alone.
            number: the signal.
            more: `slow`, seconds that reading a file takes longer; `limit`, bytes of the largest file it may write.
        """
        (code,) = self.at_once([arguments], after=after, number=int(number), **more)
        return code

    def at_once(self, calls: Sequence[Sequence[object]], **more: Any) -> list[int]:
        """Run several recomputes that start at once, and return their exit codes."""
        request = {"calls": [["recompute", *map(str, call)] for call in calls], "stderr": str(self.stderr), **more}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        codes: list[int] = json.loads(self._process.stdout.readline())
        return codes

    def told(self, call: int = 0) -> str:
        """Return what the last recompute has written to stderr."""
        return (self.stderr / f"stderr-{call}").read_text(encoding="utf-8")


def serve() -> None:
    """Fork recomputes as they are asked for."""
    import pipeline.recomputing.job
    import pipeline.sources.json_lines
    import pipeline.sources.trainer_dump  # noqa: F401 -- for the children
    from pipeline.cli import app

    for line in sys.stdin:
        request = json.loads(line)
        children = [
            _forked(app.run, call, Path(request["stderr"]) / f"stderr-{index}", request)
            for index, call in enumerate(request["calls"])
        ]
        sys.stdout.write(json.dumps(_ended(children, request.get("after"), request.get("number"))) + "\n")
        sys.stdout.flush()


def _forked(run: Any, call: list[str], stderr: Path, request: dict[str, Any]) -> int:
    child = os.fork()
    if child:
        return child
    with stderr.open("w", encoding="utf-8") as told:
        os.dup2(told.fileno(), 2)
    if slow := request.get("slow"):
        _slow_down(slow)
    if limit := request.get("limit"):
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    from pipeline.cli import signals

    signal.signal(signal.SIGTERM, signals.end_at_once)
    code = run(call)
    sys.stderr.flush()
    os._exit(code)


def _slow_down(seconds: float) -> None:
    from pipeline.recomputing import taking
    from pipeline.sources.reading import read

    def slowly(file: SourceFile) -> Iterator[BatchRead]:
        time.sleep(seconds)
        return read(file)

    vars(taking)["read"] = slowly


def _ended(children: Sequence[int], after: float | None, number: int | None) -> list[int]:
    """Wait for children, and send them a signal in time: here, where no number is given away before it is sent."""
    deadline = None if after is None else time.monotonic() + after
    codes: dict[int, int] = {}
    while len(codes) < len(children):
        for child in children:
            if child not in codes:
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    codes[child] = os.waitstatus_to_exitcode(status)
                elif deadline is not None and time.monotonic() > deadline:
                    os.kill(child, number or signal.SIGKILL)
        if deadline is not None and time.monotonic() > deadline:
            deadline = None
        time.sleep(_PAUSE)
    return [codes[child] for child in children]


class Trainer(Thread):
    """Writes dumps in place, as trainers do: new ones, others again, some torn for a while."""

    def __init__(self, dumps: Path, seed: int) -> None:
        super().__init__(daemon=True)
        self.dumps, self.random, self.ended, self.steps, self.written = dumps, random.Random(seed), Event(), 0, 0
        dumps.mkdir(parents=True, exist_ok=True)

    def run(self) -> None:
        while not self.ended.wait(self.random.uniform(0.02, 0.15)):
            self.write_one()

    def end(self) -> None:
        """Stop after the file at hand, which is then complete."""
        self.ended.set()
        self.join()

    def write_one(self) -> None:
        self.written += 1
        if self.random.random() < 0.15:
            self.write(*self.pt_dump())
        else:
            self.write(*self.json_dump())

    def write(self, path: Path, content: bytes) -> None:
        with path.open("wb") as file:
            if self.random.random() < 0.5:
                file.write(content[: self.random.randrange(len(content))])
                file.flush()
                self.ended.wait(self.random.uniform(0.0, 0.3))
                file.seek(0)
            file.write(content)

    def json_dump(self) -> tuple[Path, bytes]:
        is_new = self.steps < 60 and self.random.random() < 0.5
        self.steps += is_new
        step = self.steps - 1 if is_new else self.random.randrange(max(self.steps, 1))
        split = self.random.choice(("", "", "eval_"))
        lines = [self.sample(index) for index in range(self.random.randrange(1, 40))]
        return self.dumps / f"{split}{10 + step}.jsonl", "".join(f"{json.dumps(line)}\n" for line in lines).encode()

    def sample(self, index: int) -> dict[str, Any]:
        adapter = self.random.choice((None, {"name": "north", "slot": 0}, {"name": "south", "slot": 1}))
        fields = {"adapter": adapter, "rollout_id": self.random.choice((None, index // 2)), "group_index": index // 4}
        return sample(self.random.choice((0, 1, 0.1, 0.7, None)), index, **fields)

    def pt_dump(self) -> tuple[Path, bytes]:
        name = self.random.choice(("1.pt", "2.pt"))
        life = self.random.choice(("before", "after_resume"))
        return self.dumps / name, (FIXTURES / "miles" / "rerun" / life / "rollout_data" / name).read_bytes()


class Reader:
    """A process that opens the ledger again and again, as any DuckDB client does, and sees whether it agrees."""

    def __init__(self, ledger: Path) -> None:
        program = f"from tests.unattended.harness import poll; poll({str(ledger)!r})"
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, text=True, **pipes)  # type: ignore[call-overload]

    def end(self) -> dict[str, Any]:
        """Return how often it has looked, how many publications it saw, and what was wrong."""
        told, _ = self._process.communicate("end\n", timeout=120)
        found: dict[str, Any] = json.loads(told)
        return found


def poll(ledger: str) -> None:
    """Look at a ledger until told to end."""
    ended = Event()

    def listen() -> None:
        sys.stdin.readline()
        ended.set()

    Thread(target=listen, daemon=True).start()
    polls = 0
    seen: set[int] = set()
    wrong: list[str] = []
    while not ended.is_set() and not wrong:
        if not Path(ledger, "ledger.duckdb").exists():
            time.sleep(0.01)
            continue
        try:
            with duckdb.connect(str(Path(ledger, "ledger.duckdb")), read_only=True) as connection:
                seen.add(connection.execute("SELECT generation FROM ledger_info").fetchall()[0][0])
                wrong += disagreements(connection)
        except duckdb.Error as error:
            wrong.append(str(error))
        polls += 1
        time.sleep(0.02)
    sys.stdout.write(json.dumps({"polls": polls, "publications": len(seen), "wrong": wrong}))


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """Yield a directory on a file system of its own of that size.

    Raises:
        PermissionError: this user may not mount one.
    """
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None or mount(folder, size) != 0:
        raise PermissionError("no file system may be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def mount(folder: Path, size: str, *options: str) -> int:
    call = ["mount", "-t", "tmpfs", "-o", ",".join((f"size={size}", *options)), "tmpfs", str(folder)]
    return subprocess.run(call, check=False, capture_output=True).returncode
