"""What all tests share: property tests judge values, never how fast this machine is.

`--hypothesis-profile=thorough` looks for rarer counterexamples.
"""

from hypothesis import HealthCheck, settings

settings.register_profile("manometer", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("manometer"), max_examples=3000)
settings.load_profile("manometer")
