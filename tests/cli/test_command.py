"""The command: options, configuration, formats, exit codes, and what goes to which stream."""

from __future__ import annotations

import inspect
import json
import os
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import pipeline
from pipeline.cli.app import VERBS, run
from pipeline.sources.record_writers import write_json_lines
from tests.fixture_dumps import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Sequence

FANOUT = FIXTURES / "miles" / "multilora_fanout_run"


def sample(reward: object, **fields: Any) -> dict[str, Any]:
    return {"reward": reward, "response_length": 1, "group_index": 0, **fields}


def records(path: Path, rewards: Sequence[object], **fields: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_lines(path, [sample(reward, index=index, **fields) for index, reward in enumerate(rewards)])
    return path


def settings_of(ledger: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(pipeline.sql("SELECT DISTINCT settings FROM batches", ledger).item())
    return value


def test_the_answer_is_on_stdout_and_the_summary_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["recompute", "--still", "0", str(FANOUT), "--ledger", str(tmp_path)]) == 0
    told = capsys.readouterr()

    assert told.out == ""
    assert "3 batches, 62 samples" in told.err
    assert "north (slot 2)" in told.err


@pytest.mark.parametrize("verb", VERBS)
def test_what_is_said_of_a_verb_is_its_own_help(verb: str) -> None:
    module = import_module(f"pipeline.cli.{verb}")
    own = (
        module.app.help
        if verb == "snapshot"
        else (inspect.getdoc(getattr(module, verb)) or "").partition("\n\nArgs:")[0]
    )

    assert VERBS[verb].split() == own.split()


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from pipeline.cli.app import run; run(['--help']); sys.exit('pydantic' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0


@pytest.mark.parametrize("format_name", ["json", "csv", "markdown", "table"])
def test_formats_of_an_answer(format_name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["recompute", "--still", "0", str(FANOUT), "--ledger", str(tmp_path)])
    capsys.readouterr()

    question = "SELECT step, samples, NULL::VARCHAR AS nothing FROM batches ORDER BY step LIMIT 1"
    assert run(["sql", question, "--ledger", str(tmp_path), "--format", format_name]) == 0

    expected = {
        "json": [{"step": 0, "samples": 22, "nothing": None}],
        "csv": "step,samples,nothing\n0,22,\n",
        "markdown": "| step | samples | nothing |\n| ---: | ---: | --- |\n| 0 | 22 |  |\n",
        "table": "step  samples  nothing\n----  -------  -------\n   0       22\n",
    }
    out = capsys.readouterr().out
    assert (json.loads(out) if format_name == "json" else out) == expected[format_name]


def test_option_counts_over_environment_over_file_over_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records(tmp_path / "dumps" / "0.jsonl", [1, 0])
    config = tmp_path / "ledger.toml"
    config.write_text(
        '[defaults]\nadvantage_estimator = "gspo"\nreward_key = "score"\nsibling_rewards = "shared"\n'
        '[[runs]]\nname = "here"\nsource = "dumps"\nreward_key = "acc"\nrollout_batch_size = 7\n'
    )
    monkeypatch.setenv("ROLLOUT_LEDGER_ROLLOUT_BATCH_SIZE", "8")
    monkeypatch.setenv("ROLLOUT_LEDGER_GRPO_STD_NORMALIZATION", "false")

    code = run(
        ["recompute", "--config", str(config), "--ledger", str(tmp_path / "l"), "--sibling-rewards", "mainstream"]
    )

    assert code == 0
    assert settings_of(tmp_path / "l") == {
        "advantage_estimator": "gspo",
        "grpo_std_normalization": False,
        "log_reward_category": None,
        "metrics": None,
        "n_samples_per_prompt": None,
        "pass_threshold": 1.0,
        "reward_key": "acc",
        "reward_weights": None,
        "rewards_normalization": True,
        "rollout_batch_size": 8,
        "sibling_rewards": "mainstream",
    }
    assert pipeline.sql("SELECT DISTINCT run FROM batches", tmp_path / "l").item() == "here"


def test_the_configuration_file_may_name_the_ledger(tmp_path: Path) -> None:
    records(tmp_path / "dumps" / "0.jsonl", [1, 0])
    config = tmp_path / "ledger.toml"
    config.write_text('ledger = "there"\n[[runs]]\nname = "a"\nsource = ["dumps/*.jsonl"]\n')

    assert run(["recompute", "--still", "0", "--config", str(config)]) == 0
    assert (tmp_path / "there" / "ledger.duckdb").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["recompute", "{dumps}"], 2, "--ledger"),
        (["recompute", "--ledger", "{ledger}"], 2, "no source"),
        (["recompute", "{dumps}", "--ledger", "{ledger}", "--rollout-batch-size", "0"], 2, "rollout_batch_size"),
        (["recompute", "{dumps}", "--ledger", "{ledger}", "--sibling-rewards", "both"], 2, "sibling"),
        (["recompute", "{dumps}", "--ledger", "{ledger}", "--format", "yaml"], 2, "yaml"),
        (["recompute", "{dumps}", "--ledger", "{ledger}", "--no-such-option"], 2, "no-such-option"),
        (["recompute", "{nowhere}", "--ledger", "{ledger}"], 3, "no such file"),
        (["recompute", "{nowhere}/*.pt", "--ledger", "{ledger}"], 3, "nothing matches"),
        (["recompute", "{empty}", "--ledger", "{ledger}"], 3, "no rollout dumps"),
        (["recompute", "{broken}", "--ledger", "{ledger}"], 3, "response_length"),
        (["sql", "SELECT 1", "--ledger", "{nowhere}"], 3, "no ledger"),
        (["status", "--ledger", "{nowhere}"], 3, "no ledger"),
        (["sql", "SELECT FROM", "--ledger", "{good}"], 2, "syntax"),
        (["sql", "DROP VIEW samples", "--ledger", "{good}"], 2, "read-only"),
        (["nothing"], 2, "nothing"),
        (["--help"], 0, ""),
        (["--version"], 0, ""),
    ],
)
def test_exit_codes(
    arguments: list[str], code: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = {name: tmp_path / name for name in ("dumps", "ledger", "nowhere", "empty", "broken", "good")}
    records(places["dumps"] / "0.jsonl", [1, 0])
    records(places["broken"] / "0.jsonl", [1, 0], response_length=-1)
    places["empty"].mkdir()
    run(["recompute", "--still", "0", str(places["dumps"]), "--ledger", str(places["good"])])
    capsys.readouterr()

    at_once = ["--still", "0"] if arguments[0] == "recompute" else []

    assert run([*(argument.format(**places) for argument in arguments), *at_once]) == code

    assert told in capsys.readouterr().err


def test_some_batches_refused_is_exit_6_and_the_others_are_published(tmp_path: Path) -> None:
    records(tmp_path / "dumps" / "0.jsonl", [1, 0])
    records(tmp_path / "dumps" / "1.jsonl", [1, 0], response_length=-1)

    assert run(["recompute", "--still", "0", str(tmp_path / "dumps"), "--ledger", str(tmp_path / "l")]) == 6

    assert pipeline.sql("SELECT step FROM batches", tmp_path / "l")["step"].to_list() == [0]


def test_one_run_without_dumps_does_not_stop_the_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records(tmp_path / "dumps" / "0.jsonl", [1, 0])
    config = tmp_path / "ledger.toml"
    config.write_text('[[runs]]\nname = "a"\nsource = "gone"\n[[runs]]\nname = "b"\nsource = "dumps"\n')

    assert run(["recompute", "--still", "0", "--config", str(config), "--ledger", str(tmp_path / "l")]) == 6

    assert "gone" in capsys.readouterr().err
    assert pipeline.sql("SELECT run FROM batches", tmp_path / "l").item() == "b"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[[runs]", "cannot be read"),
        ('[defaults]\nadvantage = "grpo"\n[[runs]]\nname = "a"\nsource = "x"\n', "no such setting"),
        ('[[runs]]\nsource = "x"\n', "name"),
        ("[snapshot_]\n", "snapshot_"),
    ],
)
def test_a_wrong_configuration_is_exit_2_and_named(
    text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ledger.toml").write_text(text)

    assert (
        run(["recompute", "--still", "0", "--config", str(tmp_path / "ledger.toml"), "--ledger", str(tmp_path / "l")])
        == 2
    )

    assert told in capsys.readouterr().err


def test_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records(tmp_path / "dumps" / "0.jsonl", [1, 0])
    records(tmp_path / "dumps" / "eval_0.jsonl", [1])
    ledger = str(tmp_path / "l")
    run(["recompute", "--still", "0", str(tmp_path / "dumps"), "--ledger", ledger])
    records(tmp_path / "dumps" / "0.jsonl", [1, 0], response_length=-1)
    run(["recompute", "--still", "0", str(tmp_path / "dumps"), "--ledger", ledger])
    capsys.readouterr()

    assert run(["status", "--ledger", ledger, "--format", "json"]) == 0

    (row,) = json.loads(capsys.readouterr().out)
    told = {name: row[name] for name in ("run", "train_batches", "eval_batches", "last_step", "stale", "refused")}
    assert told == {"run": "dumps", "train_batches": 1, "eval_batches": 1, "last_step": 0, "stale": 1, "refused": 1}


def test_one_document_of_json_also_for_figures_that_json_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records(tmp_path / "0.jsonl", [1])
    run(["recompute", "--still", "0", str(tmp_path / "0.jsonl"), "--ledger", str(tmp_path / "l")])
    capsys.readouterr()

    run(["sql", "SELECT 'nan'::DOUBLE AS a, '-inf'::DOUBLE AS b", "--ledger", str(tmp_path / "l"), "--format", "json"])

    assert json.loads(capsys.readouterr().out) == [{"a": "nan", "b": "-inf"}]


def test_limit_says_how_much_was_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records(tmp_path / "0.jsonl", [1, 0, 1])
    run(["recompute", "--still", "0", str(tmp_path / "0.jsonl"), "--ledger", str(tmp_path / "l")])
    capsys.readouterr()

    run(["sql", "SELECT row FROM samples ORDER BY row", "--ledger", str(tmp_path / "l"), "--limit", "2"])

    told = capsys.readouterr()
    assert told.out.split() == ["row", "---", "0", "1"]
    assert "the first 2 rows; there are more" in told.err


def test_an_unknown_estimator_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records(tmp_path / "0.jsonl", [1, 0])

    code = run(
        [
            "recompute",
            "--still",
            "0",
            str(tmp_path / "0.jsonl"),
            "--ledger",
            str(tmp_path / "l"),
            "--advantage-estimator",
            "grop",
        ]
    )

    assert code == 0
    assert "unknown_estimator" in capsys.readouterr().err
    assert pipeline.sql("SELECT advantage FROM samples ORDER BY row", tmp_path / "l")["advantage"].to_list() == [1, 0]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_with_its_code_and_leaves_what_was_published(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    records(tmp_path / "0.jsonl", [1, 0])
    ledger = tmp_path / "l"
    run(["recompute", "--still", "0", str(tmp_path / "0.jsonl"), "--ledger", str(ledger)])
    fifo = tmp_path / "1.jsonl"
    os.mkfifo(fifo)
    # A file that never ends: the command sits in reading it when the signal comes.
    program = (
        "import sys, signal\nfrom pipeline.cli import app\nimport pipeline.recomputing.taking as taking\n"
        "taking.read = lambda source: (signal.pause(), iter(()))[1]\nprint('ready', flush=True)\napp.main()"
    )
    arguments = [sys.executable, "-c", program, "recompute", str(tmp_path / "0.jsonl"), "--ledger", str(ledger)]
    arguments += ["--still", "0", "--force"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.5)
        process.send_signal(number)
        process.communicate(timeout=20)

    assert process.returncode == code
    assert pipeline.sql("SELECT count(*) FROM samples", ledger).item() == 2


def test_help_does_not_load_the_engines() -> None:
    program = (
        "import sys\nfrom pipeline.cli.app import run\nrun(['--help'])\n"
        "print([m for m in sys.modules if m in ('polars', 'duckdb', 'rich.progress')], file=sys.stderr)"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stderr.strip() == "[]"
    assert "recompute" in done.stdout
