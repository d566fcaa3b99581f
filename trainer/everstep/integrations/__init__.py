"""Everstep inside other people's programs."""
