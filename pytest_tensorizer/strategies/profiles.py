"""Profiles of Hypothesis for the two ways in which strategies are used: as a gate, and to search for long."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

CI, FUZZ = "tensorizer-ci", "tensorizer-fuzz"
# From the default profile: on a CI server another one is loaded, in which a search would draw the same in each run.
_DEFAULT = settings.get_profile("default")
_SLOW = [HealthCheck.too_slow]
PROFILES = {
    CI: settings(
        _DEFAULT, max_examples=100, derandomize=True, database=None, deadline=None, suppress_health_check=_SLOW
    ),
    FUZZ: settings(_DEFAULT, max_examples=1000, deadline=None, suppress_health_check=_SLOW),
}
"""Name -> settings.

"tensorizer-ci" draws the same 100 examples in every run, so that a gate fails on a change and on nothing else.
"tensorizer-fuzz" draws 1,000 others in each, and keeps what fails in Hypothesis' database. Neither cares how long an
example takes, which depends on the machine.
"""


def register_profiles() -> None:
    """Make both known to Hypothesis, for `settings.load_profile`. For `--hypothesis-profile` nobody need call it."""
    for name, profile in PROFILES.items():
        settings.register_profile(name, profile)
