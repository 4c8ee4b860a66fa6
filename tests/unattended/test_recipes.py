"""Recipes for schedulers, each tried as far as this machine can: by the scheduler's own checker, or by running it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.errors import Exit
from tests.unattended.ledgers import ask, write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

RECIPES = Path(__file__).parents[2] / "docs" / "recipes"
BIN = Path(sys.executable).parent
yaml = pytest.importorskip("yaml")


@pytest.fixture
def installed(tmp_path: Path) -> Callable[[str], str]:
    """A configured ledger, and a function that puts this machine's paths into a recipe."""
    write(tmp_path / "dumps" / "0.jsonl", [1, 0])
    (tmp_path / "textfile").mkdir()
    (tmp_path / "log").mkdir()
    config = tmp_path / "ledger.toml"
    config.write_text('ledger = "l"\n[[runs]]\nname = "a"\nsource = "dumps"\n')
    places = {
        "/opt/rollout-ledger/bin": str(BIN),
        "/etc/rollout-ledger/ledger.toml": str(config),
        "/var/lib/node_exporter/textfile": str(tmp_path / "textfile"),
        "/var/log/rollout-ledger": str(tmp_path / "log"),
        "/srv/ledger": str(tmp_path / "l"),
        "/srv/dumps": str(tmp_path / "dumps"),
    }

    def here(text: str) -> str:
        for there, place in places.items():
            text = text.replace(there, place)
        return text

    return here


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)


# --- cron ---

RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def field_is_right(field: str, low: int, high: int) -> bool:
    match = re.fullmatch(r"(?:\*|(\d+)(?:-(\d+))?)(?:/(\d+))?", field)
    return match is not None and all(low <= int(number) <= high for number in match.groups()[:2] if number is not None)


def entries(text: str) -> Iterator[tuple[list[str], str, str]]:
    for line in text.splitlines():
        if line.strip() and not line.startswith("#") and not re.match(r"[A-Z]+=", line):
            *times, user, command = line.split(None, 6)
            yield times, user, command


def test_cron(installed: Callable[[str], str], tmp_path: Path) -> None:
    text = (RECIPES / "crontab").read_text()
    assert text.endswith("\n"), "cron ignores a last line that does not end"
    found = list(entries(text))
    assert len(found) == 2
    variables = dict(line.split("=", 1) for line in text.splitlines() if re.match(r"[A-Z]+=", line))
    for times, user, command in found:
        assert all(
            field_is_right(part, *limits)
            for field, limits in zip(times, RANGES, strict=True)
            for part in field.split(",")
        )
        assert user == "ledger"
        assert "%" not in command, "cron makes a new line of it"
        done = subprocess.run(
            [variables["SHELL"], "-c", installed(command)],
            env={"PATH": installed(variables["PATH"])},
            check=False,
            capture_output=True,
            timeout=120,
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")

    log = [json.loads(line) for line in (tmp_path / "log" / "recompute.log").read_text().splitlines()]
    assert [event["published"] for event in log] == [True, False]
    assert (tmp_path / "textfile" / "rollout_ledger.prom").exists()


# --- systemd ---


def unit(name: str) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for line in (RECIPES / name).read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            key, value = line.split("=", 1)
            values.setdefault(key, []).append(value)
    return values


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_units_are_right_to_systemd_itself(installed: Callable[[str], str], tmp_path: Path) -> None:
    for name in ("rollout-ledger.service", "rollout-ledger.timer"):
        # A user of the recipe's name need not be here.
        (tmp_path / name).write_text(installed((RECIPES / name).read_text()).replace("User=ledger", "User=root"))

    done = run(["systemd-analyze", "verify", "--man=no", str(tmp_path / "rollout-ledger.timer")])
    told = [line for line in done.stderr.splitlines() if "rollout-ledger" in line]
    assert (done.returncode, told) == (0, [])

    (calendar,) = unit("rollout-ledger.timer")["OnCalendar"]
    assert run(["systemd-analyze", "calendar", calendar]).returncode == 0


def test_systemd_would_notice_a_wrong_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    (tmp_path / "rollout-ledger.service").write_text("[Service]\nType=sometimes\nExecStart=/nowhere/at-all\n")
    done = run(["systemd-analyze", "verify", "--man=no", str(tmp_path / "rollout-ledger.service")])
    assert "rollout-ledger.service" in done.stderr


def test_the_systemd_service_runs_and_knows_its_exit_codes(installed: Callable[[str], str], tmp_path: Path) -> None:
    service = unit("rollout-ledger.service")

    assert run(installed(service["ExecStart"][0]).split()).returncode == 0

    assert ask(tmp_path / "l", "SELECT run FROM batches") == [("a",)]
    assert service["Type"] == ["oneshot"]
    codes = [int(code) for code in service["SuccessExitStatus"][0].split()]
    assert codes == [Exit.LOCKED, Exit.REFUSED, Exit.TERMINATED]


# --- Kubernetes ---


def test_the_cron_job(installed: Callable[[str], str], tmp_path: Path) -> None:
    document = yaml.safe_load((RECIPES / "cronjob.yaml").read_text())
    spec = document["spec"]
    job = spec["jobTemplate"]["spec"]
    pod = job["template"]["spec"]
    (container,) = pod["containers"]
    assert (document["apiVersion"], document["kind"], spec["concurrencyPolicy"]) == ("batch/v1", "CronJob", "Forbid")
    assert all(field_is_right(field, *limits) for field, limits in zip(spec["schedule"].split(), RANGES, strict=True))
    # A policy on exit codes is only heard where pods are not restarted in place.
    assert pod["restartPolicy"] == "Never"
    rules = [rule for rule in job["podFailurePolicy"]["rules"] if "onExitCodes" in rule]
    assert {rule["onExitCodes"]["containerName"] for rule in rules} == {container["name"]}
    actions = {code: rule["action"] for rule in rules for code in rule["onExitCodes"]["values"]}
    assert actions == {
        Exit.INTERRUPTED: "Ignore",
        Exit.TERMINATED: "Ignore",
        Exit.USAGE: "FailJob",
        Exit.NO_INPUT: "FailJob",
        Exit.REFUSED: "FailJob",
        Exit.BUG: "Count",
        Exit.LOCKED: "Count",
    }
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert run([str(BIN / container["command"][0]), *map(installed, container["command"][1:])]).returncode == 0
    assert ask(tmp_path / "l", "SELECT run FROM batches") == [("a",)]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl")
def test_the_cron_job_is_right_to_kubectl_itself() -> None:
    """Read into Kubernetes' own types, without a cluster: a field that they do not have is lost on the way."""
    path = RECIPES / "cronjob.yaml"

    done = run(["kubectl", "annotate", "--local", "-f", str(path), "checked=yes", "-o", "json"])

    assert done.returncode == 0, done.stderr
    understood = json.loads(done.stdout)
    assert lost(yaml.safe_load(path.read_text()), understood) == []


def lost(given: Any, understood: Any, where: str = "") -> list[str]:
    if isinstance(given, dict):
        if not isinstance(understood, dict):
            return [where]
        return [text for key, value in given.items() for text in lost(value, understood.get(key), f"{where}.{key}")]
    if isinstance(given, list):
        if not isinstance(understood, list) or len(understood) != len(given):
            return [where]
        return [text for i, value in enumerate(given) for text in lost(value, understood[i], f"{where}[{i}]")]
    return [] if given == understood else [where]


# --- Airflow and Dagster: a stub of the library, and the command that they would run ---


def library(monkeypatch: pytest.MonkeyPatch, name: str, **contents: Any) -> None:
    module = types.ModuleType(name)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)


def loaded(path: Path, installed: Callable[[str], str]) -> dict[str, Any]:
    """Run a recipe as its scheduler would import it, with this machine's paths."""
    text = installed(path.read_text()).replace('"rollout-ledger"', f'"{BIN / "rollout-ledger"}"', 1)
    names: dict[str, Any] = {"__name__": path.stem}
    exec(compile(text, str(path), "exec", dont_inherit=True), names)
    return names


class SkippedError(Exception): ...


class FailedError(Exception): ...


class AgainError(Exception): ...


FAILING = {
    Exit.BUG: AgainError,
    Exit.USAGE: FailedError,
    Exit.NO_INPUT: FailedError,
    Exit.LOCKED: SkippedError,
    Exit.REFUSED: FailedError,
    Exit.TERMINATED: AgainError,
    Exit.INTERRUPTED: AgainError,
}


def exits_with(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def ended(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        Path(command[-1]).write_text(json.dumps({"exit_code": code, "error": "why", "refused": 1}))
        return subprocess.CompletedProcess(command, code)

    monkeypatch.setattr(subprocess, "run", ended)


@pytest.mark.parametrize("home", ["airflow.sdk", "airflow.decorators"])
def test_airflow(home: str, installed: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}
    tasks: list[Callable[[], Any]] = []

    def dag(**options: Any) -> Callable[[Callable[[], None]], Callable[[], None]]:
        made.update(options)
        return lambda function: function

    def task(function: Callable[[], Any]) -> Callable[[], None]:
        tasks.append(function)
        return lambda: None

    library(monkeypatch, "airflow")
    errors = {"AirflowException": AgainError, "AirflowFailException": FailedError, "AirflowSkipException": SkippedError}
    library(monkeypatch, "airflow.exceptions", **errors)
    library(monkeypatch, home, dag=dag, task=task)

    loaded(RECIPES / "airflow_dag.py", installed)

    assert (made["catchup"], made["max_active_runs"]) == (False, 1)
    (recompute,) = tasks
    assert recompute()["batches"] == 1
    assert ask(tmp_path / "l", "SELECT run FROM batches") == [("a",)]
    for code, error in FAILING.items():
        exits_with(monkeypatch, code)
        with pytest.raises(error):
            recompute()


class Context:
    """What Dagster hands to an op."""

    def __init__(self) -> None:
        self.metadata: dict[str, Any] = {}
        self.log = types.SimpleNamespace(info=lambda *_: None)

    def add_output_metadata(self, metadata: dict[str, Any]) -> None:
        self.metadata = metadata


def test_dagster(installed: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failure(FailedError):  # noqa: N818 -- as the library calls it
        def __init__(self, text: str, *, allow_retries: bool) -> None:
            super().__init__(text)
            assert not allow_retries

    class RetryRequested(AgainError):  # noqa: N818 -- as the library calls it
        def __init__(self, *, max_retries: int, seconds_to_wait: int) -> None:
            super().__init__(max_retries, seconds_to_wait)

    def kept(**given: Any) -> dict[str, Any]:
        return given

    contents = {
        "Definitions": kept,
        "Failure": Failure,
        "OpExecutionContext": Context,
        "RetryRequested": RetryRequested,
    }
    contents |= {"ScheduleDefinition": kept, "job": lambda function: function, "op": lambda function: function}
    library(monkeypatch, "dagster", **contents)

    names = loaded(RECIPES / "dagster_definitions.py", installed)

    (schedule,) = names["definitions"]["schedules"]
    assert all(
        field_is_right(field, *limits) for field, limits in zip(schedule["cron_schedule"].split(), RANGES, strict=True)
    )
    context = Context()
    names["recompute"](context)
    assert context.metadata["batches"] == 1
    assert ask(tmp_path / "l", "SELECT run FROM batches") == [("a",)]
    for code, error in FAILING.items():
        exits_with(monkeypatch, code)
        if error is SkippedError:
            names["recompute"](context)
        else:
            with pytest.raises(error):
                names["recompute"](context)
