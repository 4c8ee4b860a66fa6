"""The page on audits: every command in it is run on the example, and has to answer what the page says."""

from __future__ import annotations

import os
import re
import shlex
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from pipeline.cli.app import run

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "audits.md"
WORKED = re.compile(r"```sh\n(?P<command>rollout-ledger .*?)\n```\n\n```text\n(?P<answer>.*?)```", re.DOTALL)
"""A command and its answer."""


@pytest.fixture(scope="module")
def demo_ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ledger = tmp_path_factory.mktemp("demo") / "demo-ledger"
    config = str(ROOT / "examples" / "ledger.toml")
    assert run(["recompute", "--still", "0", "--config", config, "--ledger", str(ledger)]) == 0
    return ledger


def worked() -> list[tuple[str, str]]:
    return [(match["command"], match["answer"]) for match in WORKED.finditer(PAGE.read_text(encoding="utf-8"))]


def answered(command: str, ledger: Path) -> str:
    program, *arguments = shlex.split(command)
    assert program == "rollout-ledger"
    out = StringIO()
    with redirect_stdout(out):
        assert run([str(ledger) if argument == "demo-ledger" else argument for argument in arguments]) == 0
    return out.getvalue()


def test_the_page_works_five_questions_and_leaves_no_command_without_its_answer() -> None:
    text = PAGE.read_text(encoding="utf-8")

    assert len(re.findall(r"^## \d\. .*\?$", text, re.MULTILINE)) == 5
    assert len(worked()) == text.count("```sh\n") == text.count("```text\n")


@pytest.mark.parametrize(("command", "answer"), worked(), ids=range(len(worked())))
def test_what_the_page_says(command: str, answer: str, demo_ledger: Path) -> None:
    found = answered(command, demo_ledger)
    if os.environ.get("UPDATE_DOCUMENTATION"):
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(
            text.replace(f"{command}\n```\n\n```text\n{answer}```", f"{command}\n```\n\n```text\n{found}```")
        )
    else:
        assert found == answer
