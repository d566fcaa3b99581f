"""Telemetry: what nodes say again after a restart, kept in memory only."""
