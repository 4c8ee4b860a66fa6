"""`rollout-ledger snapshot`: did a number move, which one, why."""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import App, Parameter

from pipeline.cli import console
from pipeline.cli.output import Format
from pipeline.cli.snapshot_gate import gate
from pipeline.cli.snapshot_options import Choice, Places, Strictness
from pipeline.errors import Exit

ReportFormat = Literal["table", "json", "markdown", "junit"]
_HERE, _ALL, _AS = Places(), Choice(), Strictness()
_Shared = Parameter(name="*")

app = App(name="snapshot", help="Keep what a ledger says, and tell whether a number moved, which one, and why.")
app.command(gate)


@app.command
def save(
    name: str,
    /,
    *,
    places: Annotated[Places, _Shared] = _HERE,
    choice: Annotated[Choice, _Shared] = _ALL,
    force: bool = False,
) -> int:
    """Keep what the ledger says, in files that can be committed.

    Args:
        name: name of the snapshot: letters, digits, '.', '_' and '-'.
        places: where the ledger and the snapshots are.
        choice: what is kept.
        force: replace a snapshot of that name.
    """
    from pipeline.snapshots import baselines

    directory = places.directory()
    header = baselines.save(name, places.ledger_directory(), directory, choice.selection(places.section()), force=force)
    counts = ", ".join(f"{number:,} {what}" for what, number in header.counts.items())
    console.say(f"{directory / name}: {counts}; fingerprint {header.fingerprint[:12]}")
    return Exit.DONE


@app.command
def check(
    name: str,
    /,
    *,
    places: Annotated[Places, _Shared] = _HERE,
    strictness: Annotated[Strictness, _Shared] = _AS,
    format: ReportFormat = "table",
) -> int:
    """Compare the ledger with a snapshot. Exit code 0: nothing differs; 4: something does; 3: no comparison.

    Args:
        name: name of the snapshot.
        places: where the ledger and the snapshots are.
        strictness: what counts as a difference.
        format: table, json, markdown or junit.
    """
    from pipeline.snapshots import baselines, report

    rules = strictness.rules(places.section())
    found = baselines.check(name, places.ledger_directory(), places.directory(), rules)
    console.answer(report.render(found, format))
    return Exit.DONE if found.verdict == "pass" else Exit.DIFFERENCE


@app.command
def diff(
    old: str,
    new: str,
    /,
    *,
    places: Annotated[Places, _Shared] = _HERE,
    choice: Annotated[Choice, _Shared] = _ALL,
    strictness: Annotated[Strictness, _Shared] = _AS,
    format: ReportFormat = "table",
) -> int:
    """Compare two snapshots, or two publications of one ledger. Exit codes as of check.

    Args:
        old: name of a snapshot, or generation:N.
        new: name of a snapshot, or generation:N.
        places: where the ledger and the snapshots are.
        choice: what is compared of publications.
        strictness: what counts as a difference.
        format: table, json, markdown or junit.
    """
    from pipeline.snapshots import baselines, report

    generations = any(side.startswith(baselines.GENERATION) for side in (old, new))
    found = baselines.diff(
        old,
        new,
        snapshots=None
        if old.startswith(baselines.GENERATION) and new.startswith(baselines.GENERATION)
        else places.directory(),
        ledger=places.ledger_directory() if generations else None,
        selection=choice.selection(places.section()) if choice.given else None,
        rules=strictness.rules(places.section()),
    )
    console.answer(report.render(found, format))
    return Exit.DONE if found.verdict == "pass" else Exit.DIFFERENCE


@app.command(name="list")
def list_(
    pattern: str = "*",
    /,
    *,
    places: Annotated[Places, _Shared] = _HERE,
    format: Format = "table",
) -> int:
    """List the snapshots.

    Args:
        pattern: names to list, as in nightly-*.
        places: where the snapshots are.
        format: table, json, csv or markdown.
    """
    from fnmatch import fnmatchcase

    import polars as pl

    from pipeline.cli.output import render
    from pipeline.snapshots import baselines

    rows = [row for row in baselines.listed(places.directory()) if fnmatchcase(row["name"], pattern)]
    columns = {"name": pl.String, "state": pl.String, "runs": pl.Int64, "batches": pl.Int64, "samples": pl.Int64}
    columns |= {"rollouts": pl.Int64, "tables": pl.String, "rows": pl.Int64, "fingerprint": pl.String}
    columns |= {"accepted": pl.Int64, "last_accepted": pl.String}
    console.answer(render(pl.DataFrame(rows, schema=columns, orient="row"), format))
    return Exit.DONE


@app.command
def show(
    name: str,
    /,
    *,
    places: Annotated[Places, _Shared] = _HERE,
    format: Literal["table", "json"] = "table",
) -> int:
    """Tell what a snapshot holds, and how its baseline was moved.

    Args:
        name: name of the snapshot.
        places: where the snapshots are.
        format: table or json.
    """
    from pipeline.cli import snapshot_texts
    from pipeline.snapshots import baselines

    shown = baselines.shown(name, places.directory())
    console.answer(snapshot_texts.as_json(shown) if format == "json" else snapshot_texts.as_text(shown))
    return Exit.DONE


@app.command
def accept(
    name: str,
    /,
    *,
    reason: str,
    by: str | None = None,
    places: Annotated[Places, _Shared] = _HERE,
) -> int:
    """Move a baseline to what the ledger says, and keep who did so, when, why, and what differed.

    Args:
        name: name of the snapshot.
        reason: why the new figures are right.
        by: who accepts them; by default the user's name.
        places: where the ledger and the snapshots are.
    """
    from pipeline.snapshots import baselines

    entry = baselines.accept(name, places.ledger_directory(), places.directory(), reason, by)
    if entry is None:
        console.say(f"snapshot {name}: nothing to accept, the ledger says what it says")
    else:
        console.say(f"snapshot {name}: accepted by {entry['by']}: {entry['differences']['headline']}")
    return Exit.DONE
