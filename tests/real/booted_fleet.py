"""Both daemons in a booted container, in an environment of their own, from the shipped units."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from real.booted_box import REPOSITORY, Box, enable

PYTHON = "/opt/everstep/bin/python"
_PYTHON_NAME = f"python{sys.version_info.major}.{sys.version_info.minor}"
_PROGRAM = '#!/bin/sh\nexec {python} -m {module} "$@"\n'


def install_fleet(box: Box, drop_ins: Sequence[str] = ()) -> None:
    """Install them and have systemd start them; with drop-ins for the agent's unit."""
    daemons = ("agent", "controller")
    install_daemons(box, daemons, drop_ins)
    box.run("systemctl", "start", "--no-block", "everstep-controller", "everstep-agent")


def install_daemons(box: Box, daemons: Sequence[str], drop_ins: Sequence[str] = ()) -> None:
    """Install some of them, with the settings that are shipped; nothing is started."""
    shipped, root = REPOSITORY / "systemd", box.root
    _environment(box)
    for daemon in daemons:
        path = root / f"opt/everstep/bin/everstep-{daemon}"
        path.write_text(_PROGRAM.format(python=PYTHON, module=f"everstep_{daemon}.main"))
        path.chmod(0o755)
        shutil.copy(shipped / f"everstep-{daemon}.service", root / "etc/systemd/system")
    folder = root / "etc/systemd/system/everstep-agent.service.d"
    folder.mkdir()
    for number, text in enumerate(drop_ins):
        (folder / f"{number}.conf").write_text(text)
    box.run("systemd-sysusers", "/opt/source/systemd/sysusers.d/everstep.conf")
    box.run("systemd-tmpfiles", "--create", "/opt/source/systemd/tmpfiles.d/everstep.conf")
    for daemon in daemons:
        shutil.copy(shipped / f"{daemon}.toml", root / "etc/everstep")
    enable(box, [])


def install_agents(box: Box, units: Mapping[str, str]) -> None:
    """Install an agent for each name, by the name of its unit: all in one container.

    Each has the shipped unit and settings, with its name and with folders and ports of its own.
    """
    shipped = (REPOSITORY / "systemd/everstep-agent.service").read_text()
    for number, (name, unit) in enumerate(units.items()):
        (box.root / f"etc/everstep/{unit}.toml").write_text(_settings(name, unit, number))
        text = shipped.replace("/agent.toml", f"/{unit}.toml")
        for key in ("RuntimeDirectory", "StateDirectory"):
            text = text.replace(f"{key}=everstep-agent", f"{key}={unit}")
        box.install(f"{unit}.service", text)
    enable(box, [])


def _settings(name: str, unit: str, number: int) -> str:
    shipped = (REPOSITORY / "systemd/agent.toml").read_text()
    top = (
        f'node = "{name}"\nhost = "127.0.0.1"\ndomain = "rack-{name}"\n'
        f'liveness_address = "127.0.0.1:{7437 + number}"\n'
        f'metrics_address = "127.0.0.1:{7535 + number}"\n'
    )
    moved = shipped.replace("everstep-agent", unit)
    return top + moved.replace("[jobs]\n", f"[jobs]\nbulk_port = {7638 + number}\n")


def _environment(box: Box) -> None:
    """Make a virtual environment that finds what the tests find, with or without PYTHONPATH."""
    home = box.root / "opt/everstep"
    packages = home / f"lib/{_PYTHON_NAME}/site-packages"
    packages.mkdir(parents=True)
    (home / "bin").mkdir()
    (home / "bin/python").symlink_to(f"/opt/python/bin/{_PYTHON_NAME}")
    (home / "pyvenv.cfg").write_text("home = /opt/python/bin\n")
    found = [Path(entry).resolve() for entry in sys.path if entry]
    inside = [entry.relative_to(REPOSITORY) for entry in found if entry.is_relative_to(REPOSITORY)]
    (packages / "source.pth").write_text("".join(f"/opt/source/{entry}\n" for entry in inside))
    # An interpreter with a shared library looks for it where it was built, which is hidden here.
    (box.root / "etc/ld.so.conf.d/everstep.conf").write_text("/opt/python/lib\n")
    box.run("ldconfig")
