"""These tests want JAX, which is no dependency: ``pip install jax`` (the CPU build is enough)."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("jax") else ["test_*.py"]
