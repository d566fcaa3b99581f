"""Collective arrival: who of a running job comes last to the collectives in which others wait."""
