"""How long the tests of months of unattended work may take; chosen, like the property tests', by HYPOTHESIS_PROFILE."""

from __future__ import annotations

import os

PROFILE = os.environ.get("HYPOTHESIS_PROFILE", "default")
KILLS = {"quick": 10, "default": 25, "long": 200}[PROFILE]
"""Recomputes that are killed while a reader polls."""
PAIRS = {"quick": 3, "default": 6, "long": 50}[PROFILE]
"""Pairs of writers that start at once."""
HISTORIES = {"quick": 4, "default": 8, "long": 60}[PROFILE]
"""Random histories of a dump directory."""
STEPS = {"quick": 20, "default": 20, "long": 40}[PROFILE]
"""Things that happen in one history."""
STRIDE = {"quick": 13, "default": 7, "long": 1}[PROFILE]
"""Of the places where a write can fail, one in so many is tried."""
