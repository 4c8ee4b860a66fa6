"""Settings of the property tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

_PHASES = (Phase.explicit, Phase.reuse, Phase.generate, Phase.target, Phase.shrink)
_COMMON = settings(
    deadline=None,
    # In CI the same examples every time: what it says of a change should be about the change.
    derandomize=bool(os.environ.get("CI")),
    phases=_PHASES,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("default", _COMMON, max_examples=200)
settings.register_profile("quick", _COMMON, max_examples=40, phases=_PHASES[:-1])
settings.register_profile("long", _COMMON, max_examples=2_000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
