"""The page on unattended work says what the code does."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from pipeline.cli import recompute as command
from pipeline.cli import telling
from pipeline.cli.gc import gc
from pipeline.errors import Exit
from pipeline.recomputing import Outcome, again, decisions, options, sources
from pipeline.sources.names import OTHER_FOLDERS
from pipeline.store.publication import Retention
from tests.unattended.ledgers import tick, write

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "unattended.md").read_text()
TEXT = " ".join(PAGE.split())


def table(heading: str) -> list[list[str]]:
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row.strip()[1:-1].split("|")] for row in rows[2:]]


def test_every_exit_code_is_explained() -> None:
    assert [int(row[0]) for row in table("Exit codes")] == sorted(Exit)
    assert all(len(row) == 4 for row in table("Exit codes"))


def test_every_reason_is_explained() -> None:
    explained = {row[0].strip("`").removesuffix(" ...") for row in table("What is done, and why")}
    code = "".join(inspect.getsource(module) for module in (decisions, again, sources))
    block = code.split("reasons = (\n", 1)[1].split("\n    )", 1)[0]
    found = set(re.findall(r', "([^"]+)"\),$', block, re.MULTILINE))
    assert len(found) > 5
    assert found <= explained
    assert all(f'"{reason}' in code for reason in explained - {"vanished"})


def test_every_fact_of_the_summary_is_named(tmp_path: Path) -> None:
    facts = telling.facts(Outcome(), tmp_path, 0.0, 0)
    named = PAGE.split("`--summary FILE`", 1)[1].split("* `rollout-ledger status", 1)[0]
    assert set(re.findall(r"`(\w+)`", named)) == set(facts)


def test_every_metric_is_named(tmp_path: Path) -> None:
    from pipeline.audit.status import status

    write(tmp_path / "dumps" / "0.jsonl", [1])
    outcome = tick(tmp_path / "dumps", tmp_path / "l")
    told = telling.facts(outcome, tmp_path / "l", 0.1, 0)
    telling.write_textfile(tmp_path / "x.prom", told, status(tmp_path / "l"))

    written = set(re.findall(r"^(rollout_ledger_\w+)", (tmp_path / "x.prom").read_text(), re.MULTILINE))
    assert set(re.findall(r"rollout_ledger_\w+", PAGE.split("| metric |", 1)[1])) == written


def test_the_figures_on_the_page() -> None:
    assert f"not changed for {options.STILL_SECONDS:g} s" in TEXT
    assert f"Younger than {options.FRESH_SECONDS:g} s" in TEXT
    assert Retention() == Retention(3, 3_600)
    assert "newest 3 (`--keep`)" in TEXT
    assert "less than an hour ago" in TEXT
    for function in (command.recompute, gc):
        defaults = {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}
        assert (defaults["keep"], defaults["keep_for"]) == (3, 3_600)
    assert inspect.signature(command.recompute).parameters["still"].default == options.STILL_SECONDS
    assert {"train_data", "policy_loss_debug", "dashboard_columns"} <= OTHER_FOLDERS


def test_every_option_is_an_option_and_every_link_leads_somewhere() -> None:
    known = {f"--{name.replace('_', '-')}" for name in inspect.signature(command.recompute).parameters}
    known |= {"--from", "--to", "--force", "--keep", "--keep-for"}
    assert set(re.findall(r"`(--[a-z-]+)", PAGE)) <= known
    links = re.findall(r"\]\(([^)#]+)\)", PAGE)
    assert len(links) == 6
    assert all((ROOT / "docs" / link).exists() for link in links)
