"""Formats under fuzz: where each of them is; they are imported by whoever runs them."""

import importlib
from types import MappingProxyType

from fuzz.format import Format

# The name of a format, its module here, and what it is called there.
FORMATS = MappingProxyType(
    {
        "launcher frames": ("job_frames", "LAUNCHER"),
        "trainer frames": ("job_frames", "TRAINER"),
        "snapshot frames": ("snapshot_frames", "SNAPSHOT_FRAMES"),
        "bulk": ("bulk", "BULK"),
        "agent streams": ("agent_streams", "AGENT_STREAMS"),
        "controller orders": ("controller_orders", "CONTROLLER_ORDERS"),
        "admin calls": ("admin_calls", "ADMIN_CALLS"),
        "liveness": ("liveness", "LIVENESS"),
        "storage files": ("storage_files", "STORAGE_FILES"),
        "kernel lines": ("kernel_lines", "KERNEL_LINES"),
        "configuration": ("configuration", "CONFIGURATION"),
        "journal rows": ("journal_rows", "JOURNAL_ROWS"),
    }
)


def load_format(name: str) -> Format:
    """Return a format by its name."""
    module, attribute = FORMATS[name]
    found = getattr(importlib.import_module(f"fuzz.formats.{module}"), attribute)
    assert isinstance(found, Format)
    return found
