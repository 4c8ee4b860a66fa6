"""Options that the verbs of `rollout-ledger snapshot` share."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from pipeline.errors import UsageError

if TYPE_CHECKING:
    from pipeline.snapshots.compare import Rules
    from schemas.settings import LedgerConfig
    from schemas.snapshot import Selection, SnapshotSettings

TableOption = Literal["batches", "samples", "rollouts", "prompt_groups", "adapters", "metrics"]
_Several = Parameter(negative=(), negative_iterable=())


@dataclass(frozen=True)
class Places:
    """Where things are.

    Args:
        ledger: directory of the ledger. Default: the configuration file's.
        snapshots: directory of the snapshots. Default: the configuration file's, else LEDGER/snapshots.
        config: a ledger.toml with a [snapshot] section; options count over it.
    """

    ledger: Path | None = None
    snapshots: Path | None = None
    config: Path | None = None

    @cached_property
    def _loaded(self) -> LedgerConfig | None:
        from pipeline.cli import configuration

        return configuration.load(self.config).content if self.config is not None else None

    def section(self) -> SnapshotSettings:
        """Return the `[snapshot]` section; without a file its defaults."""
        from schemas.snapshot import SnapshotSettings

        return SnapshotSettings() if self._loaded is None else self._loaded.snapshot

    def ledger_directory(self) -> Path:
        """Return the ledger's directory.

        Raises:
            UsageError: it is not given.
        """
        if self.ledger is not None:
            return self.ledger
        if self.config is not None and self._loaded is not None and self._loaded.ledger is not None:
            return self.config.parent / self._loaded.ledger
        message = 'no ledger: give --ledger DIR, or `ledger = "DIR"` in the configuration file'
        raise UsageError(message)

    def directory(self) -> Path:
        """Return the directory of the snapshots.

        Raises:
            UsageError: neither it nor a ledger is given.
        """
        if self.snapshots is not None:
            return self.snapshots
        if self.config is not None and self.section().directory is not None:
            return self.config.parent / str(self.section().directory)
        if self.ledger is None and (self._loaded is None or self._loaded.ledger is None):
            message = "no snapshots: give --snapshots DIR, or --ledger DIR for those in DIR/snapshots"
            raise UsageError(message)
        return self.ledger_directory() / "snapshots"


@dataclass(frozen=True)
class Choice:
    """What is kept or compared.

    Args:
        run: only this run; may be given several times.
        split: only train or only eval batches.
        first_step: only batches of this step and later.
        last_step: only batches of this step and earlier.
        table: this table instead of metrics, adapters and batches; may be given several times.
        metric: of the metrics only these: names, families or patterns; may be given several times.
        rows: samples and rollouts as well.
    """

    run: Annotated[tuple[str, ...], _Several] = ()
    split: Literal["train", "eval"] | None = None
    first_step: Annotated[int | None, Parameter(name="--from")] = None
    last_step: Annotated[int | None, Parameter(name="--to")] = None
    table: Annotated[tuple[TableOption, ...], _Several] = ()
    metric: Annotated[tuple[str, ...], _Several] = ()
    rows: bool = False

    @property
    def given(self) -> bool:
        """Return whether any of it was given."""
        return self != Choice()

    def selection(self, section: SnapshotSettings) -> Selection:
        """Return the selection, the tables by default those of the configuration file."""
        from pydantic import ValidationError

        from schemas.snapshot import ROW_TABLES, Selection

        rows = ROW_TABLES if self.rows or section.rows else ()
        tables = tuple(dict.fromkeys((*(self.table or section.tables), *rows)))
        if self.first_step is not None and self.last_step is not None and self.first_step > self.last_step:
            message = f"--from {self.first_step} --to {self.last_step}: no step lies between them"
            raise UsageError(message)
        try:
            return Selection(
                runs=tuple(sorted(set(self.run))),
                split=self.split,
                first_step=self.first_step,
                last_step=self.last_step,
                tables=tables,
                metrics=tuple(sorted(set(self.metric or section.metrics))),
            )
        except ValidationError as error:
            raise UsageError(str(error)) from error


@dataclass(frozen=True)
class Strictness:
    """What counts as a difference.

    Args:
        tolerance: METRIC=ABS,REL, how far a mean may move; METRIC may be a pattern; may be given several times.
        allow_new: rows that only the new side has are no difference: the run is growing.
        strict: an integer that became the equal float is a difference, too.
    """

    tolerance: Annotated[tuple[str, ...], _Several] = ()
    allow_new: bool = False
    strict: bool = False

    def rules(self, section: SnapshotSettings) -> Rules:
        """Return the rules, options over the configuration file.

        Raises:
            UsageError: a tolerance cannot fail, or fits no mean.
        """
        from pipeline.snapshots.compare import Rules
        from pipeline.snapshots.tolerance import tolerances

        return Rules(
            tolerances=tolerances(self.tolerance, section.tolerance),
            allow_new=self.allow_new or section.allow_new,
            strict=self.strict or section.strict,
        )
