"""What is to be done: runs, each with its sources and its settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipeline.errors import NoInputError
from pipeline.sources.discovery import Discovered, discover

if TYPE_CHECKING:
    from pipeline.sources.discovery import Looks
    from schemas.settings import Settings


@dataclass(frozen=True)
class RunPlan:
    """One run to recompute.

    Args:
        sources: dump directories, dump files or globs.
        settings: how its numbers are computed.
        name: the run's name; by default that of each source's directory.
        format: format of its files; by default found by content.
    """

    sources: tuple[str, ...]
    settings: Settings
    name: str | None = None
    format: str | None = None

    def discover(self, looks: Looks | None = None) -> Discovered:
        """Return the files of all sources, each file once.

        Args:
            looks: how known files looked (see `sources.discovery.discover`).

        Raises:
            NoInputError: a source does not exist, or none has a file.
        """
        found = Discovered()
        seen: set[str] = set()
        for source in self.sources:
            part = discover(source, self.name, self.format, looks)
            found.files += [file for file in part.files if file.name not in seen]
            found.unchanged += part.unchanged
            found.findings += part.findings
            found.directories |= part.directories
            seen.update(file.name for file in part.files)
        if not found.files and not found.findings and not found.unchanged:
            message = (
                f"{', '.join(self.sources)}: no rollout dumps (N.pt, eval_N.pt, *.jsonl, *.parquet, *.arrow) there"
            )
            raise NoInputError(message)
        return found
