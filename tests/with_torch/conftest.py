"""These tests want torch, which is no dependency: ``pip install -c constraints.txt torch``."""

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("torch") else ["test_*.py"]
collect_ignore = [] if find_spec("torchdata") else ["test_data_loader.py"]
