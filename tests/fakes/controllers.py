"""Real controllers for tests: one in this process, or one in a process that can be killed."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

from everstep_common.clock import boot_ns
from everstep_common.judging.findings import Mode
from everstep_controller.config.controller_config import ControllerConfig
from everstep_controller.core.dispatch.core import Core
from everstep_controller.core.model.settings import Settings
from everstep_controller.core.model.state import State
from everstep_controller.drivers.drivers import DriversConfig
from everstep_controller.service import Controller, Options
from everstep_controller.webhooks.config import WebhookConfig
from everstep_proto.tls import TlsSettings
from fakes.local_secret import SECRET_FILE, SECRET_LINE
from fakes.waits import eventually

_LISTENING = re.compile(r"listening on port (\d+), metrics on port (\d+)")


def config(folder: Path, tls: TlsSettings | None = None) -> ControllerConfig:
    """Return a configuration on free ports, with its journal in a folder."""
    return ControllerConfig(
        listen="127.0.0.1:0",
        metrics="127.0.0.1:0",
        journal=str(folder / "journal.sqlite"),
        secret_file=SECRET_FILE,
        core=Settings(mode=Mode.ENFORCE),
        tls=tls or TlsSettings(),
    )


@asynccontextmanager
async def controller(
    folder: Path,
    core: Callable[[State | None], Core] = Core,
    tls: TlsSettings | None = None,
    recover_by: str = "",
    drivers: DriversConfig | None = None,
    wall_ns: Callable[[], int] = time.time_ns,
    boot: tuple[str, Callable[[], int]] = ("", boot_ns),
    webhooks: Mapping[str, WebhookConfig] = MappingProxyType({}),
) -> AsyncIterator[Controller]:
    """Run a controller on this loop."""
    drivers = drivers or DriversConfig()
    settings = replace(config(folder, tls), drivers=drivers, webhooks=webhooks)
    if tls is not None:
        settings = replace(settings, listen="localhost:0")
    running = Controller.open(
        settings, Options(core, recover_by, wall_ns=wall_ns, boot_id=boot[0], boot_ns=boot[1])
    )
    await running.start()
    try:
        await _drivers_read(running)
        yield running
    finally:
        await running.stop()


async def _drivers_read(running: Controller) -> None:
    """Wait for the readings that a start asks for, so that no event of theirs comes in between."""

    def read() -> bool:
        state = running.runtime.state
        return bool(state.halted) or all(record.read for record in state.drivers.values())

    await eventually(read)


@dataclass
class ControllerProcess:
    """A controller in a process of its own, which does not outlive a ``with`` about it."""

    process: "subprocess.Popen[str]"
    port: int
    metrics_port: int

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.kill()
        self.process.wait()
        self._close()

    def terminate(self) -> int:
        """End it as a service manager does; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=20)
        self._close()
        return code

    def _close(self) -> None:
        if self.process.stderr is not None:
            self.process.stderr.close()


def controller_command(*arguments: str) -> list[str]:
    """Return the command line of the controller."""
    return [sys.executable, "-m", "everstep_controller.main", *arguments]


def environment() -> dict[str, str]:
    """Return an environment in which the packages are found."""
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def start_controller(
    folder: Path,
    port: int = 0,
    *,
    trust: str = SECRET_LINE,
    tables: str = "",
    journal: str = "",
    **environ: str,
) -> ControllerProcess:
    """Start a controller, with more tables in its configuration, and wait until it listens.

    ``trust``: the line of its configuration that says whom it trusts; older versions know none.
    ``journal``: the address of a database, instead of a file in the folder.
    """
    file = folder / "controller.toml"
    place = f'journal = "{folder}/journal.sqlite"\n'
    if journal:
        place = f'journal = "{journal}"\nstate_folder = "{folder}"\n'
    file.write_text(
        f'listen = "127.0.0.1:{port}"\nmetrics = "127.0.0.1:0"\n'
        f'{place}log_style = "text"\n{trust}{tables}'
    )
    process = subprocess.Popen(
        controller_command("--config", str(file)),
        env=environment() | environ,
        stderr=subprocess.PIPE,
        text=True,
    )
    said = []
    assert process.stderr is not None
    for line in process.stderr:
        said.append(line)
        if found := _LISTENING.search(line):
            return ControllerProcess(process, int(found[1]), int(found[2]))
    process.wait()
    process.stderr.close()
    raise AssertionError("the controller did not start:\n" + "".join(said))


async def scrape(running: Controller) -> dict[str, float]:
    """Return every sample as Prometheus would name it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.metrics_port)
    writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
    text = (await reader.read()).decode().partition("\r\n\r\n")[2]
    writer.close()
    return {
        sample.name + str(sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
