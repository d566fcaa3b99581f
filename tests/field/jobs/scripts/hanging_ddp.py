"""Runs plain_ddp.py as hanging.py does, with the imports of that script in its first lines.

Warm standbys import what the first lines of a script import; those of hanging.py name no framework.
"""

import sys

import torch
import torch.distributed
import torch.nn.parallel  # noqa: F401

if __name__ == "__main__":
    # What does something when it is imported ends the lines that standbys read.
    import hanging

    hanging.run("plain_ddp.py", *sys.argv[1:])
