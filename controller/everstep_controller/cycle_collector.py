"""Garbage collector of Python: set to run so seldom that hardly any recovery plan waits for it.

Nearly all that the controller drops goes at once, by its count of references. A pass over all that
lives takes 0.1 s in a fleet of 2,000 nodes, longer than the plan of its largest job. That plan
makes 40,000 objects, and by Python's own thresholds (700, 10, 10) would pay for the pass.
"""

import gc

# Objects made and not dropped between two passes over the young ones: more than a plan makes.
_YOUNG_MAX = 100_000


def look_seldom() -> None:
    """Have it look after so many objects more; how often older ones are looked at stays."""
    gc.set_threshold(_YOUNG_MAX, 10, 10)
