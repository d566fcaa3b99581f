"""The fabric manager's log: followed from where it was read last, and its findings."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from everstep_agent.probes.kernel.kernel_log import Position
from everstep_agent.sources.kernel_log import fabric_manager_source
from everstep_common.judging.findings import FindingKey
from everstep_common.judging.judgement import Judgement

_OLD = "[Jul 23 2024 07:53:55] [ERROR] [tid 841] failed to find the GPU handle 1 in the multicast"
_NEW = f"{_OLD} team request setup 2.\n"


def _look(path: Path, position: Position, *writes: str) -> tuple[list[Judgement], list[Position]]:
    """Look before each write, and after the last."""
    kept: list[Position] = []

    async def scenario() -> list[Judgement]:
        source = fabric_manager_source(path, position, 5.0, kept.append)
        found: list[Judgement] = []
        for text in ("", *writes):
            with path.open("a", encoding="utf-8") as file:
                file.write(text)
            said: Sequence[Judgement] = await source.look()
            source.told()
            found += said
        return found

    return asyncio.run(scenario()), kept


def test_a_manager_that_refuses_multicast_is_found_though_its_service_is_active(
    tmp_path: Path,
) -> None:
    path = tmp_path / "fabricmanager.log"
    path.write_text(_NEW, encoding="utf-8")
    found, kept = _look(path, Position(), "[Feb 27 2025 14:10:02] [INFO] Connected\n", _NEW)
    (judgement,) = found
    assert judgement.key == FindingKey("fabric/manager", "FabricMulticastFailed")
    assert kept[-1].place == path.stat().st_size
    # The next agent goes on where this one was.
    again, _ = _look(path, kept[-1])
    assert again == []
    missed, _ = _look(path, Position(kept[-1].source, 0))
    assert [one.key for one in missed] == [judgement.key]


def test_a_node_without_a_fabric_manager_has_no_fault(tmp_path: Path) -> None:
    async def scenario() -> Sequence[Judgement]:
        source = fabric_manager_source(tmp_path / "none", Position(), 5.0, lambda _: None)
        return await source.look()

    assert list(asyncio.run(scenario())) == []
