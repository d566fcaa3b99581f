"""Fault injection: makes faults on purpose, and marks every finding that they cause."""
