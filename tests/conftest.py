"""Settings of the property tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

_PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink)
_COMMON = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large]}
settings.register_profile("default", max_examples=200, phases=_PHASES, **_COMMON)
settings.register_profile("quick", max_examples=40, phases=_PHASES[:-1], **_COMMON)
settings.register_profile("long", max_examples=2_000, phases=_PHASES, print_blob=True, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
