"""Faults on purpose: they enter where real ones do, and everything they cause says so."""
