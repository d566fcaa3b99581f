"""What most nodes do not need is imported where it is used: seen in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

_VENDORS = {"amd_smi", "amd_sysfs", "ascend", "hygon", "xpu_smi", "tool"}
_LOOK = """
from pathlib import Path
import everstep_agent.main, everstep_agent.daemon
from everstep_agent.probes.accelerators.vendors import accelerator_probes
print("present:", *(one.name for one in accelerator_probes(Path({sysfs!r})) if one.present()))
"""


def imported(code: str, **environ: str) -> tuple[set[str], str]:
    """Return the modules of a process after some code, and what it printed."""
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"],
        env=os.environ | {"PYTHONPATH": paths} | environ,
        capture_output=True,
        text=True,
        check=True,
    )
    *said, modules = done.stdout.splitlines()
    return set(modules.split()), "\n".join(said)


def of_vendors(modules: set[str]) -> set[str]:
    """Return which modules of other vendors' accelerators are among these."""
    names = {one.rpartition(".")[2] for one in modules if ".probes.accelerators." in one}
    return names & _VENDORS


def test_the_start_of_an_agent_imports_no_vendors_probe_and_no_service_of_others(
    tmp_path: Path,
) -> None:
    modules, said = imported(_LOOK.format(sysfs=str(tmp_path)), PATH=str(tmp_path))
    assert "everstep_agent.daemon" in modules
    assert said == "present:"
    assert of_vendors(modules) == set()
    names = ("nvhcd", "everstep.", "pynvml", "everstep_agent.metrics.collector")
    assert [one for one in modules if any(name in f"{one}." for name in names)] == []


@pytest.mark.parametrize(
    ("tool", "module"), [("npu-smi", "ascend"), ("xpu-smi", "xpu_smi"), ("hy-smi", "hygon")]
)
def test_a_tool_that_is_installed_has_its_vendors_probe_imported_and_no_other(
    tmp_path: Path, tool: str, module: str
) -> None:
    (tmp_path / tool).touch(mode=0o755)
    modules, said = imported(_LOOK.format(sysfs=str(tmp_path)), PATH=str(tmp_path))
    assert said == f"present: {tool}"
    assert of_vendors(modules) == {module, "tool"}


def test_a_card_of_amd_has_its_probe_imported(tmp_path: Path) -> None:
    device = tmp_path / "class/drm/card0/device"
    device.mkdir(parents=True)
    (device / "vendor").write_text("0x1002\n")
    (device / "uevent").write_text("DRIVER=amdgpu\n")
    modules, said = imported(_LOOK.format(sysfs=str(tmp_path)), PATH=str(tmp_path))
    assert said == "present: amd"
    assert of_vendors(modules) == {"amd_smi", "amd_sysfs", "tool"}


def test_torchruns_handler_is_imported_when_torchrun_asks_for_it() -> None:
    modules, _ = imported(
        "import everstep, everstep.launch.main, everstep.integrations.torchrun.plugin"
    )
    ours = {one for one in modules if one.startswith("everstep.integrations.torchrun.")}
    assert ours == {"everstep.integrations.torchrun.plugin"}
    assert "torch" not in modules


def test_a_controller_imports_the_client_of_kubernetes_where_a_cluster_is_configured() -> None:
    start = "import everstep_controller.main, everstep_controller.config\n"
    made = start + (
        "from everstep_controller.drivers.kubernetes.config import KubernetesDriverConfig\n"
        "from everstep_controller.drivers.port import DriverContext\n"
        "KubernetesDriverConfig(access={access!r}).driver(DriverContext(30.0))"
    )
    clients = {"lightkube", "httpx2", "yaml", "anyio"}
    assert not clients & imported(made.format(access=""))[0]
    assert clients <= imported(made.format(access="in-cluster"))[0]
