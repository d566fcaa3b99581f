"""These tests want frameworks that are no dependency; `make test-long` installs them.

By hand: ``pip install -c constraints.txt transformers accelerate lightning paddlepaddle``.
"""

from importlib.util import find_spec

_NEEDED = {
    "test_transformers.py": ("torch", "transformers", "accelerate"),
    "test_lightning.py": ("torch", "lightning"),
    "test_reported_losses.py": ("torch", "transformers", "accelerate", "lightning"),
    "test_paddle.py": ("paddle",),
}
collect_ignore = [name for name, packages in _NEEDED.items() if not all(map(find_spec, packages))]
