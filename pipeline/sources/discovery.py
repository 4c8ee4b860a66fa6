"""A SOURCE of the command line becomes files to read, and findings for the ones that are not rollout dumps."""

from __future__ import annotations

import glob
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.errors import NoInputError
from pipeline.sources import names
from pipeline.sources.batch import SourceFile
from schemas.findings import Finding

_GLOB_CHARACTERS = frozenset("*?[")


@dataclass
class Discovered:
    """Files to read, in order of split and step, and what was found beside them."""

    files: list[SourceFile] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def discover(source: str, run: str | None, format: str | None = None) -> Discovered:
    """Return the files of a dump directory, of one file, or of a glob.

    Args:
        source: directory (a trainer's dump directory or its `rollout_data` folder), file, or glob.
        run: name of the run; by default the directory's.
        format: format of all files; by default found by content.

    Raises:
        NoInputError: there is no such file or directory.
    """
    path = Path(source)
    found = Discovered()
    if path.is_dir():
        _add_directory(found, path, run, format)
    elif path.is_file():
        _add_file(found, path, run or names.run_name(path.parent), format)
    elif _GLOB_CHARACTERS & set(source):
        _add_glob(found, source, run, format)
    else:
        message = f"{source}: no such file or directory; give a dump directory, a dump file or a glob"
        raise NoInputError(message)
    found.files.sort(key=_order)
    return found


def _order(file: SourceFile) -> tuple[str, str, int, str]:
    return file.run, file.split or "", file.step if file.step is not None else -1, file.name


def _add_directory(found: Discovered, directory: Path, run: str | None, format: str | None) -> None:
    run = run or names.run_name(directory)
    inner = directory / names.ROLLOUT_FOLDER
    for path in sorted((inner if inner.is_dir() else directory).iterdir()):
        if not names.has_dump_suffix(path) or path.name.startswith(".") or not path.is_file():
            continue
        if names.read_name(path).is_dump or names.holds_many_steps(path):
            _add_file(found, path, run, format)
        else:
            found.findings.append(_foreign(path, run))


def _add_glob(found: Discovered, pattern: str, run: str | None, format: str | None) -> None:
    paths = [Path(name) for name in sorted(glob.glob(pattern, recursive=True))]
    for path in paths:
        if path.is_file():
            _add_file(found, path, run or names.run_name(path.parent), format)
        elif path.is_dir() and path.name not in names.OTHER_FOLDERS:
            _add_directory(found, path, run, format)
    if not paths:
        message = f"{pattern}: nothing matches; give a dump directory, a dump file or another glob"
        raise NoInputError(message)


def _add_file(found: Discovered, path: Path, run: str, format: str | None) -> None:
    says = names.read_name(path)
    found.files.append(SourceFile(path=path, run=run, split=says.split, step=says.step, format=format))


def _foreign(path: Path, run: str) -> Finding:
    message = (
        f"{path.name} is not named like a rollout dump (N.pt, eval_N.pt, rollout_N.pt) and was skipped; "
        "name it or give it as a source of its own"
    )
    return Finding(code="foreign_name", message=message, source=str(path), run=run)
