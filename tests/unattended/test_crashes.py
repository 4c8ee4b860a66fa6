"""Killed, out of disk, failing at every write, started twice: nothing is lost or doubled, nothing half-done shows."""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest

from pipeline import RunPlan, Settings, recompute
from pipeline.errors import StorageError
from pipeline.recomputing import Options
from pipeline.store import publication, relations
from pipeline.store.layout import Layout
from pipeline.store.publication import Retention
from tests.unattended.effort import KILLS, PAIRS, STRIDE
from tests.unattended.harness import Reader, Recomputes, Trainer, mount, small_disk
from tests.unattended.ledgers import ask, assert_same_figures, disagreements, published, rewards, tick, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEPT = ("--keep", "2", "--keep-for", "30")


@pytest.fixture(scope="module")
def recomputes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recomputes]:
    with Recomputes(tmp_path_factory.mktemp("stderr")) as server:
        yield server


def wrong(ledger: Path) -> list[str]:
    with publication.opened(Layout(ledger)) as connection:
        return disagreements(connection)


def assert_as_from_scratch(dumps: Path, ledger: Path, scratch: Path) -> None:
    """Figures, files and findings are those of one undisturbed recompute of what is there."""
    tick(dumps, scratch, still_seconds=0)
    assert_same_figures(ledger, scratch)
    columns = ["source", "state", "size", "modified_ns", "digest", "batches", "versions", "settings"]
    one, two = (published(path, ["sources"])["sources"].select(columns) for path in (ledger, scratch))
    assert one.equals(two)
    assert ask(ledger, "SELECT code FROM findings WHERE code <> 'replaced_batch'") == []


def assert_tidy(ledger: Path) -> None:
    """Nothing lies there but what a kept publication names."""
    data = ledger / "data"
    named = {
        segment
        for path in (data / "generations").iterdir()
        for segment in pl.read_parquet(path / "batches.parquet")["segment"]
    }
    assert {path.name for path in (data / "segments").iterdir()} == named
    assert not (data / "staging").exists()


def test_killed_at_any_moment_nothing_is_lost_or_doubled(recomputes: Recomputes, tmp_path: Path) -> None:
    dumps, ledger, chance = tmp_path / "dumps", tmp_path / "l", random.Random(7)
    call = (dumps, "--run", "a", "--ledger", ledger)
    live = (*call, *KEPT, "--still", "0.05")
    trainer, reader = Trainer(dumps, seed=7), Reader(ledger)
    for _ in range(5):
        trainer.write_one()
    assert recomputes(*call, *KEPT, "--still", "0") == 0
    trainer.start()
    kills, codes, usual = 0, set(), 0.5
    while kills < KILLS:
        # Some are let alone, so that there is a publication now and then; the others die anywhere on their way.
        is_killed = chance.random() < 0.8
        start = time.monotonic()
        code = recomputes(*live, after=chance.uniform(0, 1.1 * usual) if is_killed else None)
        usual = usual if is_killed else (usual + time.monotonic() - start) / 2
        kills += code == -signal.SIGKILL
        codes.add(code)
    trainer.end()
    assert recomputes(*call, *KEPT, "--still", "0") == 0, recomputes.told()
    found = reader.end()

    # 6: a dump was torn for so long that it was a finding; never 5: a dead holder's lock blocks nobody.
    assert codes <= {-signal.SIGKILL, 0, 6}
    assert found["wrong"] == []
    assert found["polls"] > KILLS / 5
    polled = f"{found['polls']} polls of {found['publications']} publications"
    sys.stdout.write(f"{kills} kills, {polled}, {trainer.written} dumps\n")
    assert_as_from_scratch(dumps, ledger, tmp_path / "scratch")
    recomputes(*call, "--still", "0", "--force", "--keep", "1", "--keep-for", "0")
    assert_tidy(ledger)


def test_the_reader_would_see_what_is_wrong(tmp_path: Path) -> None:
    write(tmp_path / "dumps" / "0.jsonl", [1, 0])
    write(tmp_path / "dumps" / "1.jsonl", [1])
    tick(tmp_path / "dumps", tmp_path / "l")
    (segment,) = (tmp_path / "l" / "data" / "segments").iterdir()
    for relation in ("samples", "rollouts", "prompt_groups", "adapters", "metrics"):
        path = segment / f"{relation}.parquet"
        whole = pl.read_parquet(path)
        whole.filter(pl.col("step") == 0).write_parquet(path)
        assert wrong(tmp_path / "l"), relation
        whole.write_parquet(path)
    assert wrong(tmp_path / "l") == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_publishes_what_is_whole(number: int, code: int, recomputes: Recomputes, tmp_path: Path) -> None:
    for step in range(30):
        write(tmp_path / "dumps" / f"{step}.jsonl", [step])

    call = (tmp_path / "dumps", "--run", "a", "--ledger", tmp_path / "l")
    assert recomputes(*call, after=1.5, number=number, slow=0.15) == code

    steps = list(rewards(tmp_path / "l"))
    assert 0 < len(steps) < 30
    assert steps == list(range(len(steps)))
    assert wrong(tmp_path / "l") == []
    assert recomputes(*call) == 0
    assert_as_from_scratch(tmp_path / "dumps", tmp_path / "l", tmp_path / "scratch")


def test_two_writers_at_once(recomputes: Recomputes, tmp_path: Path) -> None:
    dumps, ledger = tmp_path / "dumps", tmp_path / "l"
    write(dumps / "0.jsonl", [1, 0])
    call = (dumps, "--run", "a", "--ledger", ledger, "--still", "0", *KEPT)
    locked = 0
    for step in range(1, PAIRS + 1):
        write(dumps / f"{step}.jsonl", [step, 0])
        codes = recomputes.at_once([call, call])
        assert sorted(codes) in ([0, 5], [0, 0])
        if 5 in codes:
            locked += 1
            told = recomputes.told(codes.index(5))
            assert re.search(rf"being written by process \d+ on {re.escape(socket.gethostname())} since 20\d\d-", told)
        assert wrong(ledger) == []
        assert len(rewards(ledger)) == step + 1

    assert locked >= 0.8 * PAIRS
    sys.stdout.write(f"{locked} of {PAIRS} pairs met" + "\n")
    assert_as_from_scratch(dumps, ledger, tmp_path / "scratch")


def test_a_holder_that_was_killed_blocks_nobody(recomputes: Recomputes, tmp_path: Path) -> None:
    for step in range(3):
        write(tmp_path / "dumps" / f"{step}.jsonl", [step])
    call = (tmp_path / "dumps", "--run", "a", "--ledger", tmp_path / "l")

    assert recomputes(*call, after=1.0, slow=2.0) == -signal.SIGKILL
    assert (tmp_path / "l" / "ledger.holder").exists()
    assert recomputes(*call) == 0

    assert_as_from_scratch(tmp_path / "dumps", tmp_path / "l", tmp_path / "scratch")
    assert not (tmp_path / "l" / "ledger.holder").exists()


# --- errors of the disk ---


def failing(patch: pytest.MonkeyPatch, n: int, *, is_done: bool) -> list[str]:
    """Let the n-th operation on the disk fail, before it or after it is done. Returns what was called so far."""
    called: list[str] = []

    def wrap(owner: Any, name: str, error: Callable[[], Exception]) -> None:
        right = getattr(owner, name)

        def operation(*arguments: Any, **more: Any) -> Any:
            called.append(name)
            is_it = len(called) == n
            if is_it and not is_done:
                raise error()
            result = right(*arguments, **more)
            if is_it:
                raise error()
            return result

        patch.setattr(owner, name, operation)

    def full() -> Exception:
        return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for owner, name in ((os, "fsync"), (Path, "replace"), (Path, "mkdir"), (pl.DataFrame, "write_parquet")):
        wrap(owner, name, full)
    for name in ("create_info", "create"):
        wrap(relations, name, lambda: duckdb.IOException("IO Error: could not write"))
    return called


@pytest.fixture(scope="module")
def published_once(shared_path: Path) -> Path:
    """Steps published one by one, so that the next tick also joins segments; then one new, one changed, one gone."""
    root = shared_path
    for step in range(16):
        write(root / "dumps" / f"{step}.jsonl", [step, 0])
        tick(root / "dumps", root / "l", retention=Retention(1, 0))
    write(root / "dumps" / "3.jsonl", [1, 1], age=900)
    write(root / "dumps" / "99.jsonl", [1, 0])
    (root / "dumps" / "5.jsonl").unlink()
    return root


@pytest.mark.parametrize("is_done", [False, True])
def test_an_error_at_any_write_leaves_a_whole_state(
    is_done: bool, published_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = [RunPlan((str(published_once / "dumps"),), Settings(), "a")]
    options = Options(wait=False, retention=Retention(1, 0))
    before = published(published_once / "l")
    shutil.copytree(published_once / "l", tmp_path / "right")
    with monkeypatch.context() as patch:
        total = len(failing(patch, 0, is_done=is_done)) or len(_called(patch, plan, tmp_path / "right", options))
    right = published(tmp_path / "right")

    outcomes = set()
    for n in range(1, total + 1, STRIDE):
        ledger = tmp_path / str(n)
        shutil.copytree(published_once / "l", ledger)
        with monkeypatch.context() as patch:
            failing(patch, n, is_done=is_done)
            try:
                recompute(plan, ledger, options)
            except StorageError:
                outcomes.add("told")
            else:
                outcomes.add("done all the same")
        after = published(ledger)
        assert wrong(ledger) == []
        assert any(all(after[name].equals(state[name]) for name in after) for state in (before, right)), n

        is_tidy = recompute(plan, ledger, options).published
        after = published(ledger)
        assert all(after[name].equals(right[name]) for name in after), n
        if is_tidy:
            assert_tidy(ledger)
        shutil.rmtree(ledger)
    assert "told" in outcomes
    sys.stdout.write(f"{len(range(1, total + 1, STRIDE))} of {total} operations failed, {sorted(outcomes)}" + "\n")


def _called(patch: pytest.MonkeyPatch, plan: list[RunPlan], ledger: Path, options: Options) -> list[str]:
    called = failing(patch, 0, is_done=False)
    recompute(plan, ledger, options)
    return called


def test_a_full_disk(tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    try:
        with small_disk(tmp_path / "disk", "3000k") as disk:
            ledger, failed = disk / "l", 0
            for step in range(60):
                write(dumps / f"{step}.jsonl", [0.1 * i for i in range(200)])
                try:
                    tick(dumps, ledger, retention=Retention(1, 0))
                except StorageError:
                    failed += 1
                    assert wrong(ledger) == []
                    assert list(rewards(ledger)) == list(range(step + 1 - failed))
                    if failed == 5:
                        break
            assert failed == 5
            assert mount(disk, "50m", "remount") == 0
            tick(dumps, ledger)
            assert_as_from_scratch(dumps, ledger, tmp_path / "scratch")
    except PermissionError as error:
        pytest.skip(str(error))


def test_a_file_that_may_grow_no_further_is_an_error_of_the_disk(recomputes: Recomputes, tmp_path: Path) -> None:
    write(tmp_path / "dumps" / "0.jsonl", [1, 0])
    call = (tmp_path / "dumps", "--run", "a", "--ledger", tmp_path / "l")
    assert recomputes(*call) == 0
    write(tmp_path / "dumps" / "1.jsonl", [0.1 * i for i in range(3_000)])

    for limit in (20_000, 60_000):
        assert recomputes(*call, limit=limit) == 1
        assert "cannot be written" in recomputes.told()
        assert "Traceback" not in recomputes.told()
        assert list(rewards(tmp_path / "l")) == [0]

    assert recomputes(*call) == 0
    assert_as_from_scratch(tmp_path / "dumps", tmp_path / "l", tmp_path / "scratch")


def test_a_ledger_that_cannot_be_made_is_told_without_a_trace(recomputes: Recomputes, tmp_path: Path) -> None:
    write(tmp_path / "dumps" / "0.jsonl", [1, 0])
    (tmp_path / "file").touch()

    assert recomputes(tmp_path / "dumps", "--ledger", tmp_path / "file" / "l") == 1

    assert "cannot be written" in recomputes.told()
    assert "Traceback" not in recomputes.told()
