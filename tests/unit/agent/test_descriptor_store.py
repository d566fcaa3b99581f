"""The holder of descriptors keeps as many as systemd does by the unit of the agent."""

import re
from pathlib import Path

from everstep_agent.commands.hold import DESCRIPTORS_MAX

_UNIT = Path(__file__).parents[3] / "systemd" / "everstep-agent.service"


def test_the_holder_keeps_as_many_descriptors_as_the_unit_of_the_agent() -> None:
    found = re.findall(r"^FileDescriptorStoreMax=(\d+)$", _UNIT.read_text(), re.MULTILINE)
    assert found == [str(DESCRIPTORS_MAX)]
