"""The fixture `ledger_snapshot`, as users have it in their own repositories."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

TEST = """
    from pipeline import RunPlan, Settings, recompute
    from pipeline.recomputing.options import Options
    from pipeline.sources.record_writers import write_json_lines

    REWARDS = [1, 0]
    SETTINGS = Settings(metrics=["accounting"])

    def ledger(path):
        samples = [{"reward": reward, "index": i, "response_length": 1} for i, reward in enumerate(REWARDS)]
        write_json_lines(path / "0.jsonl", samples)
        recompute([RunPlan((str(path / "0.jsonl"),), SETTINGS, "a")], path / "l", Options(still_seconds=0.0))
        return path / "l"

    def test_rewards(ledger_snapshot, tmp_path):
        ledger_snapshot(ledger(tmp_path), rows=True)

    def test_named(ledger_snapshot, tmp_path):
        ledger_snapshot(ledger(tmp_path), "by-name", tolerance=["*raw_reward=0.6,0"])
"""


@pytest.fixture
def project(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makepyfile(test_it=TEST)
    return pytester


def test_without_the_flag_nothing_is_written_and_a_missing_snapshot_fails(project: pytest.Pytester) -> None:
    result = project.runpytest_inprocess("-p", "no:xdist")

    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(["*pytest --update-ledger-snapshots*"])
    assert not (project.path / "ledger_snapshots").exists()


def test_the_flag_writes_and_the_next_run_passes(project: pytest.Pytester) -> None:
    project.runpytest_inprocess("--update-ledger-snapshots").assert_outcomes(passed=2)
    written = {path: path.read_bytes() for path in (project.path / "ledger_snapshots").rglob("*.jsonl")}

    project.runpytest_inprocess().assert_outcomes(passed=2)
    project.runpytest_inprocess("--update-ledger-snapshots").assert_outcomes(passed=2)

    assert {path.parent.name for path in written} == {"test_it.test_rewards", "by-name"}
    assert all(path.read_bytes() == content for path, content in written.items())


def test_a_number_that_moved_fails_with_the_report(project: pytest.Pytester) -> None:
    project.runpytest_inprocess("--update-ledger-snapshots")
    path = project.path / "test_it.py"
    path.write_text(path.read_text().replace("REWARDS = [1, 0]", "REWARDS = [1, 0.5]"))

    result = project.runpytest_inprocess()

    # Its mean moved within the tolerance of the second test; the reward of the rows did not.
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(
        ["*FAIL  snapshot test_it.test_rewards against ledger*", "*rollouts*mainstream_reward*0*0.5*"]
    )


def test_a_test_that_asks_for_other_tables_must_be_updated(project: pytest.Pytester) -> None:
    project.runpytest_inprocess("--update-ledger-snapshots")
    path = project.path / "test_it.py"
    path.write_text(path.read_text().replace(", rows=True", ""))

    result = project.runpytest_inprocess()

    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*made of other tables or runs*"])


def test_loading_the_plugin_loads_no_engine(project: pytest.Pytester) -> None:
    Path("test_it.py").write_text(
        "import sys\ndef test_it(pytestconfig): assert not {'polars', 'duckdb', 'pydantic'} & set(sys.modules)\n"
    )

    project.runpytest_subprocess("-p", "no:hypothesispytest").assert_outcomes(passed=1)
