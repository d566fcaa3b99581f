"""Judges over samples: nodes that stand out from their peers. Pure, and outside the fold.

The shell runs them on a tick; only changes of their verdicts become events of the core.
"""
