"""All tests: with EVERSTEP_TEST_JITTER=<seed>, on event loops of hostile timing (fakes)."""

import os

from hypothesis import settings

from fakes import hostile_timing

# Hypothesis fails an example that takes 0.2 s by default: beside other work, any can.
settings.register_profile("without deadlines", deadline=None)
settings.load_profile("without deadlines")

if wanted := os.environ.get("EVERSTEP_TEST_JITTER"):
    hostile_timing.install(wanted)
