"""Fuzz of every wire format: ``python tests/fuzz [--help]``."""

import sys
from importlib import import_module
from pathlib import Path

if __name__ == "__main__":
    tests = Path(__file__).resolve().parents[1]
    sys.path[:1] = [str(tests), str(tests.parent / "bench")]
    sys.exit(import_module("fuzz.command").main())
