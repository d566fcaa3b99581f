"""Enrolment: how a node gets its certificate, keeps it, and leaves out those that were revoked."""
