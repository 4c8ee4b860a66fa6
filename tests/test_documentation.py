"""What the README and the documentation show is what happens."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pipeline.cli.app import run

ROOT = Path(__file__).parent.parent
SECONDS = re.compile(r"; \d+\.\d s ->")


def demo_commands() -> list[tuple[str, list[str]]]:
    """Return (command line, lines shown) of the README's demo."""
    text = (ROOT / "README.md").read_text()
    block = text.split("<!-- demo -->\n```\n")[1].split("```\n<!-- /demo -->")[0]
    parts = block.split("$ rollout-ledger ")[1:]
    return [(part.split("\n")[0], part.rstrip("\n").split("\n")[1:]) for part in parts]


def test_the_demo_shows_what_the_readme_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")

    for line, shown in demo_commands():
        script = (ROOT / "examples" / "weights.sql").read_text()
        arguments = [script if word.startswith("$(cat") else word for word in shlex.split(line)]
        assert run(arguments) == 0
        told = capsys.readouterr()
        lines = (told.out + told.err).rstrip("\n").split("\n")
        assert [SECONDS.sub(";", one) for one in lines] == [SECONDS.sub(";", one) for one in shown]


def test_make_demo_runs_those_commands() -> None:
    recipe = (ROOT / "Makefile").read_text().replace("$$", "$")

    for line, _ in demo_commands():
        assert f"rollout-ledger {line}\n" in recipe


def test_the_readme_is_one_screen_beside_the_demo() -> None:
    text = (ROOT / "README.md").read_text()

    assert len(text.splitlines()) < 80


@pytest.mark.parametrize("number", [0, 1])
def test_the_python_page_runs(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.DOTALL)

    exec(compile(blocks[number], f"python.md block {number}", "exec"), {})


def test_links_of_the_documentation_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
