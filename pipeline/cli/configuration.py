"""Settings from options, environment, `ledger.toml` and defaults, in this order."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from pipeline.errors import UsageError
from schemas.settings import LedgerConfig, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PREFIX = "ROLLOUT_LEDGER_"


@dataclass(frozen=True)
class Configuration:
    """A `ledger.toml` and where it lies: its relative paths are relative to it."""

    path: Path
    content: LedgerConfig


def load(path: Path) -> Configuration:
    """Return a `ledger.toml`.

    Raises:
        UsageError: it cannot be read, or says what no such file can say.
    """
    try:
        content = LedgerConfig.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        return Configuration(path, content)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        message = f"{path}: cannot be read ({error})"
        raise UsageError(message) from error
    except ValidationError as error:
        raise UsageError(_worded(str(path), error)) from error


def settings(loaded: Configuration | None, run: Mapping[str, Any], options: Mapping[str, Any]) -> Settings:
    """Return the settings of a run.

    Args:
        loaded: the configuration file, whose `[defaults]` count least.
        run: settings of the run's own entry in that file.
        options: settings given on the command line, null where not given.

    Raises:
        UsageError: a setting does not exist, or has a value that it cannot have.
    """
    values: dict[str, Any] = {}
    layers = (loaded.content.defaults if loaded else {}, run, environment(os.environ), options)
    for layer in layers:
        values.update({name: value for name, value in layer.items() if value is not None})
    for name, field in Settings.model_fields.items():
        if field.default is None and values.get(name) in ("", "none"):
            values[name] = None
    try:
        chosen = Settings.model_validate(values)
    except ValidationError as error:
        raise UsageError(_worded("settings", error)) from error
    _check_metrics(chosen)
    return chosen


def _check_metrics(chosen: Settings) -> None:
    from pipeline.expressions.catalogue import selected

    selected(chosen.metrics)


def environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that the environment gives, by name."""
    names = {f"{PREFIX}{name.upper()}": name for name in Settings.model_fields}
    return {name: variables[variable] for variable, name in names.items() if variable in variables}


def _worded(where: str, error: ValidationError) -> str:
    lines = []
    for detail in error.errors(include_url=False):
        name = ".".join(str(part) for part in detail["loc"])
        expected = detail["msg"][0].lower() + detail["msg"][1:]
        if detail["type"] == "extra_forbidden":
            expected = f"no such setting; there are {', '.join(Settings.model_fields)}"
        lines.append(f"{where}: {name} = {detail['input']!r}: {expected}")
    return "\n".join(lines)
