"""A whole agent on the fake NVIDIA driver: what it reads and what it hears reach a controller."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from fakes.local_secret import SECRET_FILE
from fakes.nvml import FakeDriver
from fakes.tiny_fleet import TinyFleet, serving

_ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[FakeDriver]:
    fake = FakeDriver(tmp_path, gpus=8)
    yield fake
    fake.close()


@asynccontextmanager
async def _agent(folder: Path, port: int, driver: FakeDriver) -> AsyncIterator[None]:
    config = folder / "agent.toml"
    config.write_text(
        f"""
        node = "node-1"
        controller = "127.0.0.1:{port}"
        secret_file = "{SECRET_FILE}"
        data_folder = "{folder}/data"
        kernel_log = "{folder}/no-such-log"
        metrics_address = ""
        liveness_address = "127.0.0.1:0"
        [jobs]
        runtime_folder = "{folder}/run"
        bulk_port = 0
        """
    )
    paths = (str(_ROOT / part) for part in ("agent", "common", "proto"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "everstep_agent.main", "--config", str(config)),
        env={**os.environ, **driver.environment, "PYTHONPATH": os.pathsep.join(paths)},
    )
    try:
        yield
    finally:
        process.terminate()
        await process.wait()


def test_gpus_an_xid_without_a_kernel_log_and_a_lost_gpu_reach_the_controller(
    tmp_path: Path, driver: FakeDriver
) -> None:
    async def scenario() -> None:
        async with serving(TinyFleet()) as fleet, _agent(tmp_path, fleet.port, driver):
            await fleet.until(lambda: fleet.hellos)
            accelerators = fleet.hellos[0].inventory.accelerators
            assert [one.pci_address for one in accelerators][:2] == ["0000:3b:00.0", "0000:3c:00.0"]
            driver.event(1, "xid", 48)
            await fleet.until(lambda: _conditions(fleet) & {"XidFatal"})
            driver.set(2, lost=1)
            await fleet.until(lambda: _conditions(fleet) & {"GpuLost"})

    asyncio.run(scenario())


def _conditions(fleet: TinyFleet) -> set[str]:
    return {record.finding_raised.finding.condition for record in fleet.of("finding_raised")}
