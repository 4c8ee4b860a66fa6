"""A reader that the damage in a file ends."""

from __future__ import annotations

import os


def abort(_source: object) -> None:
    os.abort()
