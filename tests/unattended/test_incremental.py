"""Recomputing what is new, again and again, gives what recomputing everything at once gives: random histories."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from pipeline import RunPlan, Settings, recompute
from pipeline.errors import NoInputError, StorageError
from pipeline.recomputing import Options
from pipeline.sources.record_writers import write_json_lines
from pipeline.sources.stamps import digest
from pipeline.store import durable, publication, relations
from pipeline.store.publication import Publication
from tests.unattended.effort import HISTORIES, STEPS
from tests.unattended.ledgers import FIGURES, QUICK_DISK, Tables, bits, stored

NAMES = ("0.jsonl", "1.jsonl", "rollout_1.jsonl", "eval_1.jsonl", "many.jsonl", "more.jsonl", "2.jsonl")
SETTINGS = (
    Settings(),
    Settings(grpo_std_normalization=False),
    Settings(reward_key="score"),
    Settings(sibling_rewards="shared"),
)
REWARDS = (0.0, 1.0, 0.1, 0.7, 1 / 3, None, {"score": 0.3}, "text")
BREAKS = ("torn", "negative", "empty", "garbage")
KEY = ("run", "split", "step")
Key = tuple[str, str, int]
Row = dict[str, Any]

one_reward = st.sampled_from(REWARDS)
batches = st.lists(st.tuples(one_reward, st.integers(0, 2)), min_size=1, max_size=4)
dumps = st.dictionaries(st.integers(1, 4), batches, min_size=1, max_size=3)


@dataclass(frozen=True)
class Remembered:
    """What a published batch was read from."""

    path: str
    digest: str
    content: bytes
    state: str


@dataclass(frozen=True)
class State:
    """What a ledger says."""

    publication: Publication
    tables: Tables

    @property
    def files(self) -> dict[str, Row]:
        return {row["source"]: row for row in self.publication.sources.to_dicts()}

    @property
    def batches(self) -> dict[Key, Row]:
        return {(row["run"], row["split"], row["step"]): row for row in self.publication.batches.to_dicts()}

    @property
    def findings(self) -> pl.DataFrame:
        return self.publication.findings


class DumpDirectory(RuleBasedStateMachine):
    """A dump directory over months: written into, broken, tidied up, and recomputed now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="history", dir=QUICK_DISK))
        self.dumps = self.root / "dumps"
        self.dumps.mkdir()
        self.ledger = self.root / "ledger"
        self.clock = time.time_ns() - 86_400 * 10**9
        self.settings = SETTINGS[0]
        self.serial = 0
        self.must_verify = False
        self.remembered: dict[Key, Remembered] = {}
        self.alone: dict[tuple[str, str, str], dict[Key, Tables]] = {}
        self.state = State(publication.NOTHING, {})
        self.patch = pytest.MonkeyPatch()
        # The relations are read from the files that the views would read; making views is most of a tick's time.
        self.patch.setattr(relations, "create", lambda *_: None)

    def teardown(self) -> None:
        self.patch.undo()
        shutil.rmtree(self.root)

    # --- what happens to the directory ---

    @initialize(steps=dumps)
    def first(self, steps: dict[int, list[tuple[Any, int]]]) -> None:
        self.write("many.jsonl", steps, None)

    @rule(name=st.sampled_from(NAMES), steps=dumps, broken=st.sampled_from((None, None, None, *BREAKS)))
    def write(self, name: str, steps: dict[int, list[tuple[Any, int]]], broken: str | None) -> None:
        self.put(name, self.lines(name, steps), broken)

    @rule(name=st.sampled_from(NAMES), steps=dumps)
    def write_just_now(self, name: str, steps: dict[int, list[tuple[Any, int]]]) -> None:
        self.put(name, self.lines(name, steps), None)
        os.utime(self.dumps / name)

    @rule(name=st.sampled_from(NAMES))
    def let_it_be_still(self, name: str) -> None:
        if (self.dumps / name).exists():
            self.touch(name)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        (self.dumps / name).unlink(missing_ok=True)

    @rule(name=st.sampled_from(NAMES), new=st.sampled_from(NAMES))
    def rename(self, name: str, new: str) -> None:
        if (self.dumps / name).exists() and not (self.dumps / new).exists():
            (self.dumps / name).rename(self.dumps / new)

    @rule(name=st.sampled_from(NAMES))
    def overwrite_with_the_same_look(self, name: str) -> None:
        path = self.dumps / name
        if path.exists() and b"completed" in path.read_bytes():
            look = path.stat()
            path.write_bytes(path.read_bytes().replace(b"completed", b"truncated", 1))
            os.utime(path, ns=(look.st_atime_ns, look.st_mtime_ns))
            self.must_verify = True

    @rule(chosen=st.sampled_from(SETTINGS))
    def change_settings(self, chosen: Settings) -> None:
        self.settings = chosen

    def lines(self, name: str, steps: dict[int, list[tuple[Any, int]]]) -> list[Row]:
        many = name in {"many.jsonl", "more.jsonl"}
        self.serial += 1
        common = {"response_length": 2, "status": "completed", "group_index": 0, "serial": self.serial}
        return [
            {**common, "reward": reward, "index": index, **({"step": step} if many else {})}
            for step, batch in (steps if many else dict([next(iter(steps.items()))])).items()
            for reward, index in batch
        ]

    def put(self, name: str, lines: list[Row], broken: str | None) -> None:
        path = self.dumps / name
        if broken == "negative":
            lines[-1]["response_length"] = -1
        write_json_lines(path, lines)
        if broken == "torn":
            path.write_bytes(path.read_bytes()[:-9])
        if broken in {"empty", "garbage"}:
            path.write_bytes(b"" if broken == "empty" else b"no dump at all")
        self.touch(name)

    def touch(self, name: str) -> None:
        self.clock += 10**9
        os.utime(self.dumps / name, ns=(self.clock, self.clock))

    # --- recomputing ---

    def recompute(self, ledger: Path | None = None, source: Path | None = None, **options: Any) -> bool:
        """Recompute; return whether that could be done at all."""
        plan = RunPlan((str(source or self.dumps),), self.settings, "a")
        try:
            outcome = recompute([plan], ledger or self.ledger, Options(wait=False, **options))
        except (NoInputError, StorageError):
            outcome = None
        if ledger is None and (outcome is None or outcome.published):
            self.state = State(*stored(self.ledger))
            self.check_relations()
        return outcome is not None

    @rule()
    def tick(self) -> None:
        before = self.state
        if not self.recompute(verify=self.must_verify):
            return
        self.must_verify = False
        self.compare(self.from_scratch(), before)

    @rule(polls=st.integers(0, 4))
    def tick_that_is_stopped(self, polls: int) -> None:
        left = iter(range(polls))
        self.recompute(verify=self.must_verify, stop=lambda: next(left, None) is None)
        self.remember()

    @rule(operation=st.sampled_from(("write_parquet", "sync_directory", "sync_file", "replace")), n=st.integers(1, 12))
    def tick_that_fails(self, operation: str, n: int) -> None:
        right, left = getattr(durable, operation), iter(range(n))

        def failing(*arguments: Any) -> None:
            if next(left, None) is None:
                raise OSError(5, "Input/output error")
            right(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(durable, operation, failing)
            self.recompute(verify=self.must_verify)
        self.remember()

    @rule()
    def read_everything_again(self) -> None:
        for path in self.dumps.iterdir():
            if path.stat().st_mtime_ns > self.clock:
                self.touch(path.name)
        before = self.state
        if self.recompute(force=True):
            self.must_verify = False
            self.compare(self.from_scratch(), before)

    # --- what must hold ---

    def check_relations(self) -> None:
        newest, tables = self.state.publication, self.state.tables
        keys = set(newest.batches.select(KEY).iter_rows())
        assert len(keys) == newest.batches.height
        assert set(newest.batches["source"]) <= set(newest.sources["source"])
        for name, frame in tables.items():
            assert set(frame.select(KEY).unique().iter_rows()) == keys, name
        samples = tables["samples"].group_by(KEY).len() if keys else None
        if samples is not None:
            both = newest.batches.join(samples, on=KEY)
            assert both["samples"].to_list() == both["len"].to_list()

    def from_scratch(self, **options: Any) -> State:
        ledger = self.root / "scratch"
        shutil.rmtree(ledger, ignore_errors=True)
        self.recompute(ledger, **options)
        return State(*stored(ledger))

    def compare(self, scratch: State, before: State) -> None:
        ours, files = self.state.batches, self.state.files
        contested, rivals = self.contested(scratch)
        for source, row in scratch.files.items():
            if row["state"] == "pending":
                self.check_waiting(files[source], row)
            elif source not in rivals:
                self.check_file(files[source], row)
        gone = {source for source in files if source not in scratch.files}
        assert gone == {source for source, row in files.items() if row["state"] == "vanished"}
        rows, right = by_key(self.state.tables), by_key(scratch.tables)
        for key in contested:
            right.pop(key, None)
        for key, frames in right.items():
            assert key in rows, f"{key} is missing"
            assert ours[key]["state"] == "ok"
            assert ours[key]["source"] == scratch.batches[key]["source"]
            same(rows[key], frames, key)
        for key in rows.keys() - right.keys():
            same(rows[key], self.of_one_file(self.remembered[key], ours[key]["settings"])[key], key)
            if key not in contested:
                self.check_left_over(key, before, scratch)
        for key in self.remembered.keys() - rows.keys() - right.keys():
            self.check_gone(key, scratch)
        self.check_findings(scratch, rivals)
        self.remember()

    def contested(self, scratch: State) -> tuple[set[Key], set[str]]:
        """Return batches that a file claimed which is being written again, and files that claim them too.

        Its claim stands until it is read; to a recompute from scratch it claims nothing yet.
        """
        pending = {source for source, row in scratch.files.items() if row["state"] == "pending"}
        claims = self.state.findings.filter(code="duplicate_batch").select(*KEY, "source").rows()
        claimed = {(*claim[:3],) for claim in claims if claim[3] in pending}
        return claimed, {source for *key, source in claims if tuple(key) in claimed}

    def check_file(self, ours: Row, right: Row) -> None:
        for column in ("size", "modified_ns", "state", "settings"):
            assert ours[column] == right[column], (column, ours, right)

    def check_waiting(self, ours: Row, right: Row) -> None:
        """A file that is still being written is read later, whatever others say of its batches meanwhile."""
        assert (ours["size"], ours["modified_ns"]) == (right["size"], right["modified_ns"])
        was_taken_by_force = ours["digest"] == digest(Path(right["source"]))
        assert ours["state"] == "pending" or was_taken_by_force, (ours, right)

    def check_left_over(self, key: Key, before: State, scratch: State) -> None:
        """A batch that nobody would find today: of a file that is gone, refused, or not yet complete again."""
        was, batch = self.remembered[key], self.state.batches[key]
        source = batch["source"]
        assert source == was.path
        if source in scratch.files:
            state = scratch.files[source]["state"]
            assert state in {"refused", "pending"}, (key, scratch.files[source])
            kept = "stale" if state == "refused" or self.is_refused_for_good(key) else before.batches[key]["state"]
            assert batch["state"] == kept
            return
        assert self.state.files[source]["state"] == "vanished"
        if self.is_refused_for_good(key):
            assert batch["state"] == "stale"
        elif was.state == "ok":
            can = key in self.of_one_file(was, self.settings.as_json())
            assert (batch["state"] == "ok") == can, (key, batch["state"])
            assert batch["settings"] == self.settings.as_json() or not can

    def errors(self, key: Key) -> set[tuple[str, str]]:
        """Return code and file of what refuses a batch."""
        errors = self.state.findings.filter(severity="error", run=key[0], split=key[1], step=key[2])
        return set(errors.select("code", "source").iter_rows())

    def is_refused_for_good(self, key: Key) -> bool:
        # The accounting of its own file is set apart: other settings may satisfy it.
        return bool(self.errors(key) - {("siblings_differ", self.state.batches[key]["source"])})

    def is_refused_by_accounting_only(self, key: Key) -> bool:
        return self.errors(key) == {("siblings_differ", self.state.batches[key]["source"])}

    def check_gone(self, key: Key, scratch: State) -> None:
        """A batch that was published and is not any more: its file does not hold it now, or has another name."""
        was = self.remembered.pop(key)
        renamed = any(row["digest"] == was.digest for row in scratch.files.values() if row["state"] != "refused")
        # A file that only another one's claim, or the accounting, has refused was read as a whole.
        codes = set(self.state.findings.filter(severity="error", source=was.path)["code"])
        read_whole = was.path in scratch.files and codes <= {"duplicate_batch", "siblings_differ"}
        assert renamed or read_whole, (key, was.path, codes)

    def check_findings(self, scratch: State, rivals: set[str]) -> None:
        """Findings of the files that are there; that a batch was replaced is all that remembers."""
        columns = ("run", "split", "step", "source", "severity", "code", "row", "field", "value")
        there = [s for s, row in scratch.files.items() if row["state"] != "pending" and s not in rivals]
        found = []
        for state in (self.state, scratch):
            findings = state.findings.filter(pl.col("code") != "replaced_batch", pl.col("source").is_in(there))
            found.append(sorted(map(repr, findings.select(columns).iter_rows())))
        assert found[0] == found[1]

    def remember(self) -> None:
        """Note what the published batches were read from."""
        kept: dict[Key, Remembered] = {}
        for key, row in self.state.batches.items():
            path, was = Path(row["source"]), self.remembered.get(key)
            known = self.state.files[row["source"]]["digest"]
            if row["state"] == "ok" and path.exists() and known == digest(path):
                kept[key] = Remembered(row["source"], known, path.read_bytes(), "ok")
            elif was is not None:
                is_stale = row["state"] == "stale" and not self.is_refused_by_accounting_only(key)
                kept[key] = Remembered(was.path, was.digest, was.content, "stale" if is_stale else was.state)
        self.remembered = kept

    def of_one_file(self, was: Remembered, with_settings: str) -> dict[Key, Tables]:
        """Return what a file gives by itself."""
        call = (was.path, was.digest, with_settings)
        if call not in self.alone:
            folder = self.root / "alone" / "dumps"
            shutil.rmtree(folder.parent, ignore_errors=True)
            folder.mkdir(parents=True)
            (folder / Path(was.path).name).write_bytes(was.content)
            plan = RunPlan((str(folder),), Settings.model_validate_json(with_settings), "a")
            recompute([plan], folder.parent / "ledger", Options(still_seconds=0))
            self.alone[call] = by_key(stored(folder.parent / "ledger")[1])
        return self.alone[call]


def by_key(tables: Tables) -> dict[Key, Tables]:
    """Return each batch's rows of every relation."""
    parts: dict[Key, Tables] = {}
    for name in FIGURES:
        if name in tables:
            for key, frame in tables[name].partition_by(KEY, as_dict=True).items():
                parts.setdefault(key, {})[name] = frame.sort(frame.columns[:9])
    return parts


def same(one: Tables, other: Tables, key: Key) -> None:
    for name in FIGURES:
        frames = [bits(t[name].drop("published_at", "source", "state", strict=False)) for t in (one, other)]
        assert frames[0].equals(frames[1]), f"{name} of {key}:\n{frames[0]}\n{frames[1]}"


DumpDirectory.TestCase.settings = settings(max_examples=HISTORIES, stateful_step_count=STEPS)
TestDumpDirectory = DumpDirectory.TestCase
