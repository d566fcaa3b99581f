"""How scripts show what the SDK warns of: with logging of their own, and without."""

import subprocess
import sys

import pytest

_WARN = """
log = logging.getLogger("everstep")
log.info("nothing that has to be known")
log.warning("steps are saved again; %d were not", 2)
"""
_INSTALL = """
import logging, sys
from everstep.rank.sdk_log import TerminalLog
TerminalLog.install()
TerminalLog.install()
"""
_BAR = 'sys.stderr.write("28% 84/300"); sys.stderr.flush()\n'
_LAUNCHED = 'import os; os.environ["EVERSTEP_LAUNCHER"] = "1"\n'
_OWN = """
handler = logging.StreamHandler()
handler.setFormatter(logging.Formatter("own: %(message)s"))
logging.getLogger("everstep").addHandler(handler)
"""


@pytest.mark.parametrize(
    ("before", "shown"),
    [
        ("", b"everstep: steps are saved again; 2 were not\n"),
        (_LAUNCHED + _BAR, b"28% 84/300\reverstep: steps are saved again; 2 were not\n"),
        (
            "logging.basicConfig()\n",
            b"WARNING:everstep:steps are saved again; 2 were not\n",
        ),
        (_OWN, b"own: steps are saved again; 2 were not\n"),
        ("sys.stderr = None\n", b""),
        ("sys.stderr.close()\nlogging.raiseExceptions = False\n", b""),
    ],
)
def test_a_warning_says_whose_it_is_once(before: str, shown: bytes) -> None:
    command = [sys.executable, "-c", _INSTALL + before + _WARN]
    told = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert told.stderr == shown
