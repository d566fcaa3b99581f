"""An agent in a pod: what it does not see of its node, each in a sentence."""

import asyncio
from pathlib import Path

from everstep_agent.inventory.node_view import NodeView
from everstep_agent.sources.host import HostSettings, disk_sources
from everstep_agent.sources.kernel_log import pstore_source
from everstep_common.clock import stamp_clock

_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}


def _blind(folder: Path, environ: dict[str, str]) -> dict[str, str]:
    view = NodeView()
    disk_sources(HostSettings(deadline_s=5.0), view, environ=environ)
    pstore = pstore_source([folder], view, stamp_clock(), 5.0, environ)

    async def look() -> None:
        await pstore.look()

    asyncio.run(look())
    return {name: why for name, why in view.blind.items() if why}


def test_a_pod_says_that_it_sees_neither_all_file_systems_nor_crashes(tmp_path: Path) -> None:
    assert _blind(tmp_path, _POD) == {
        "file systems": "this agent is a pod, and sees only those that are mounted into it",
        "pstore": f"this agent is a pod, and {tmp_path} is not mounted into it",
    }


def test_an_agent_of_the_host_says_nothing_of_that(tmp_path: Path) -> None:
    assert _blind(tmp_path, {}) == {}
