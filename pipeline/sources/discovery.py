"""A SOURCE of the command line becomes files to read, and findings for the ones that are not rollout dumps."""

from __future__ import annotations

import glob
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.errors import NoInputError
from pipeline.sources import names
from pipeline.sources.batch import SourceFile
from pipeline.sources.stamps import Stamp
from schemas.findings import Finding

Looks = Mapping[tuple[str, str], tuple[int, int]]
"""Size and time of the last change (nanoseconds since 1970) of known files, by run and path."""
_GLOB_CHARACTERS = frozenset("*?[")


@dataclass
class Discovered:
    """Files to read, in order of split and step, and what was found beside them.

    `unchanged` are the (run, path) of files that look as `Looks` says they did, `directories` the (run, path) of those
    that were looked into, `failures` the errors of sources that could not be used.
    """

    files: list[SourceFile] = field(default_factory=list)
    unchanged: list[tuple[str, str]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    directories: set[tuple[str, str]] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Return whether there is no dump, nor anything that looks like one."""
        return not (self.files or self.unchanged or self.findings)

    def add(self, other: Discovered) -> None:
        """Add what another source holds; each file counts once."""
        seen = {file.name for file in self.files}
        known = set(self.unchanged)
        self.files += [file for file in other.files if file.name not in seen and (file.run, file.name) not in known]
        self.unchanged += [key for key in other.unchanged if key not in known and key[1] not in seen]
        self.findings += other.findings
        self.directories |= other.directories


def discover(source: str, run: str | None, format: str | None = None, looks: Looks | None = None) -> Discovered:
    """Return the files of a dump directory, of one file, or of a glob. Paths come out absolute, links as they are.

    Args:
        source: directory (a trainer's dump directory or its `rollout_data` folder), file, or glob.
        run: name of the run; by default the directory's.
        format: format of all files; by default found by content.
        looks: how known files looked; those of a directory that still do are not turned into `SourceFile`s.

    Raises:
        NoInputError: there is no such file or directory, or it cannot be listed.
    """
    path = Path(os.path.abspath(source))  # noqa: PTH100 -- resolve() would follow links
    found = Discovered()
    try:
        if path.is_dir():
            _add_directory(found, path, run, format, looks or {})
        elif path.is_file():
            _add_file(found, path, run or names.run_name(path.parent), format)
        elif _GLOB_CHARACTERS & set(source):
            _add_glob(found, str(path), run, format)
        else:
            message = f"{source}: no such file or directory; give a dump directory, a dump file or a glob"
            raise NoInputError(message)
    except OSError as error:
        message = f"{source}: cannot be listed ({error.strerror}); check that it is there and may be read"
        raise NoInputError(message) from error
    found.files.sort(key=_order)
    return found


def _order(file: SourceFile) -> tuple[str, str, int, str]:
    return file.run, file.split or "", file.step if file.step is not None else -1, file.name


def _add_directory(found: Discovered, directory: Path, run: str | None, format: str | None, looks: Looks) -> None:
    run = run or names.run_name(directory)
    inner = directory / names.ROLLOUT_FOLDER
    listed = inner if inner.is_dir() else directory
    found.directories.add((run, str(listed)))
    with os.scandir(listed) as entries:
        for entry in entries:
            # Most files of a long run are known: one look at each is all that they cost.
            key = run, entry.path
            look = looks.get(key)
            status = None if look is None else _status(entry)
            if status is not None and (status.st_size, status.st_mtime_ns) == look and stat.S_ISREG(status.st_mode):
                found.unchanged.append(key)
            else:
                _add_entry(found, entry, run, format)


def _add_entry(found: Discovered, entry: os.DirEntry[str], run: str, format: str | None) -> None:
    path = Path(entry.path)
    if entry.name.startswith(".") or not names.has_dump_suffix(path):
        return
    status = _status(entry)
    if status is None or not stat.S_ISREG(status.st_mode):
        return
    if names.read_name(path).is_dump or names.holds_many_steps(path):
        _add_file(found, path, run, format, status)
    else:
        found.findings.append(_foreign(path, run))


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Return a file's status; null where it is gone since it was listed, or is a link to nowhere."""
    try:
        return entry.stat()
    except OSError:
        return None


def _add_glob(found: Discovered, pattern: str, run: str | None, format: str | None) -> None:
    paths = [Path(name) for name in sorted(glob.glob(pattern, recursive=True))]  # noqa: PTH207 -- absolute patterns
    for path in paths:
        if path.is_file():
            of_run = run or names.run_name(path.parent)
            found.directories.add((of_run, str(path.parent)))
            _add_file(found, path, of_run, format)
        elif path.is_dir() and path.name not in names.OTHER_FOLDERS:
            _add_directory(found, path, run, format, {})
    if not paths:
        message = f"{pattern}: nothing matches; give a dump directory, a dump file or another glob"
        raise NoInputError(message)


def _add_file(
    found: Discovered, path: Path, run: str, format: str | None, status: os.stat_result | None = None
) -> None:
    says = names.read_name(path)
    stamp = Stamp.from_status(status or path.stat())
    found.files.append(SourceFile(path, run, says.split, says.step, format, stamp))


def _foreign(path: Path, run: str) -> Finding:
    message = (
        f"{path.name} is not named like a rollout dump (N.pt, eval_N.pt, rollout_N.pt) and was skipped; "
        "name it or give it as a source of its own"
    )
    return Finding(code="foreign_name", message=message, source=str(path), run=run)
