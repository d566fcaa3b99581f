"""Fake of a Kubernetes API server: as much of the API as the driver uses, by the letter.

The suite in tests/kubernetes_suite runs against it, and against a real server: what it does here,
that does as well.
"""
