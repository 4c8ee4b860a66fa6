"""Questions to a published ledger, in SQL, read-only.

The room has the name of its main verb: `pipeline.audit.audits` is a module in it, `pipeline.audit("gaps", "ledger")`
a call of `pipeline.audit.audits.audit`. A module is callable if its class is, and this one's is.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl


class _Room(ModuleType):
    """The package, which can be called like its function `audit`."""

    def __call__(self, name: str, ledger: str | Path, **options: Any) -> pl.DataFrame:
        """Return the answer of a named audit; see `pipeline.audit.audits.audit`."""
        from pipeline.audit.audits import audit

        return audit(name, ledger, **options)


sys.modules[__name__].__class__ = _Room
