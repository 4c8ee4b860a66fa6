"""Reward accounting of reinforcement-learning rollouts, recomputed from a trainer's dumps.

`account` computes every table from canonical samples, lazily and without touching a disk; `read` turns dumps into
canonical samples; `recompute` does both for whole runs and publishes a ledger; `audit`, `check` and
`sql` ask it. Everything is imported on
first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.audit.audits import audit as audit
    from pipeline.audit.audits import check as check
    from pipeline.audit.query import sql as sql
    from pipeline.recomputing.job import recompute as recompute
    from pipeline.recomputing.plan import RunPlan as RunPlan
    from pipeline.sources.batch import SourceFile as SourceFile
    from pipeline.sources.reading import read as read
    from pipeline.stages.accounting import Accounts as Accounts
    from pipeline.stages.accounting import account as account
    from schemas.settings import Settings as Settings

_HOMES = {
    "Accounts": "pipeline.stages.accounting",
    "RunPlan": "pipeline.recomputing.plan",
    "Settings": "schemas.settings",
    "SourceFile": "pipeline.sources.batch",
    "account": "pipeline.stages.accounting",
    "check": "pipeline.audit.audits",
    "read": "pipeline.sources.reading",
    "recompute": "pipeline.recomputing.job",
    "sql": "pipeline.audit.query",
}

__all__ = ["Accounts", "RunPlan", "Settings", "SourceFile", "account", "audit", "check", "read", "recompute", "sql"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "audit":
        # The room of this name is callable: whoever imports a module of it finds the same object here.
        return import_module("pipeline.audit")
    if name not in _HOMES:
        message = f"module 'pipeline' has no attribute {name!r}"
        raise AttributeError(message)
    return getattr(import_module(_HOMES[name]), name)
