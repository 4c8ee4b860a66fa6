"""Errors that a user sees: what happened, where, what to do. Each knows its exit code."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of the command; documented, and relied upon by scheduled jobs."""

    DONE = 0
    BUG = 1
    USAGE = 2
    NO_INPUT = 3
    DIFFERENCE = 4
    LOCKED = 5
    REFUSED = 6
    INTERRUPTED = 130
    TERMINATED = 143


class LedgerError(Exception):
    """Base of the errors that end a command with a message instead of a traceback."""

    exit = Exit.BUG


class UsageError(LedgerError):
    """The call or the configuration cannot be used as it is."""

    exit = Exit.USAGE


class NoInputError(LedgerError):
    """No input could be used."""

    exit = Exit.NO_INPUT


class LockedError(LedgerError):
    """Another process is writing the ledger."""

    exit = Exit.LOCKED


class StorageError(LedgerError):
    """The ledger cannot be written: a full disk, a missing permission. What was published stays."""

    exit = Exit.BUG


class SourceError(Exception):
    """One source file cannot be read. It becomes a finding; it does not end the command.

    Args:
        code: a key of `schemas.findings.CODES`.
        message: what is wrong, what was expected, what to do.
        field: the field, where it is one field's problem.
        value: the value found, as short text.
    """

    def __init__(self, code: str, message: str, *, field: str | None = None, value: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field
        self.value = value
