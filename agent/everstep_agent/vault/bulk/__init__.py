"""Copies on their way between agents: authenticated TCP connections, striped and paced."""
