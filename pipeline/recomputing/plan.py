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
            NoInputError: not one of the sources exists.
        """
        found = Discovered()
        errors: list[NoInputError] = []
        for source in self.sources:
            try:
                found.add(discover(source, self.name, self.format, looks))
            except NoInputError as error:
                errors.append(error)
        if len(errors) == len(self.sources):
            raise errors[0]
        found.failures = [str(error) for error in errors]
        return found
