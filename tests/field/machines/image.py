"""Image of the field: what every machine has on its disk, installed as installing.md says.

The commands are those of the page, read from it: a page that is wrong installs nothing.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from field.machines.isolation import EndRequests, run_isolated
from field.machines.site import USERS

REPOSITORY = Path(__file__).resolve().parents[3]
_PAGE = REPOSITORY / "docs/installing.md"
_SECTION = "## Installing under systemd"
# The placeholder of the page for a wheel: pip install 'PLACEHOLDER[agent]'.
_PLACEHOLDER = re.compile(r"pip install '(?P<what>[^'\[]+)\[agent\]'")
WHEELS = "/opt/field/wheels"
# What the page leaves to the site: the users, their environment, and where their storage is.
_TRAINING = """\
python3 -m venv /opt/training
/opt/training/bin/pip install --quiet {wheel} tqdm
"""
_TARGET = """\
[Unit]
Description=What a machine of the field runs
Requires=basic.target dbus.service
After=basic.target dbus.service
AllowIsolate=yes
"""
_SHARED = """\
[Unit]
Description=Storage that all machines share
[Mount]
What=/mnt/filer
Where=/shared
Type=none
Options=bind
[Install]
WantedBy=multi-user.target
"""
# What waits for a network that is not there, or asks a person.
_MASKED = (
    *("systemd-networkd-wait-online", "systemd-firstboot", "systemd-resolved"),
    *("systemd-timesyncd", "systemd-logind", "console-getty"),
)
# A folder that replaces the one below it says so in an extended attribute.
_ALL_OF_IT = ("--xattrs", "--xattrs-include=*")
EXAMPLES = (
    *("train_numpy.py", "train_ddp.py", "train_fsdp.py", "train_lightning.py"),
    *("train_transformers.py", "digits.py", "digits.npz"),
)
# Clocks of machines that share a kernel are set apart by a library before the C library.
_SKEW = Path(__file__).with_name("skew.c")


def installation(page: str, wheel: str) -> Iterator[tuple[str, str]]:
    """Yield a daemon and the shell's lines that install it, as the page has them.

    Raises ValueError where the page has no such lines.
    """
    _, _, rest = page.partition(_SECTION)
    block = re.search(r"```\n(?P<lines>.*?)```", rest, re.DOTALL)
    said = _PLACEHOLDER.search(block["lines"]) if block else None
    if block is None or said is None:
        raise ValueError(f"{_PAGE}: no commands below {_SECTION!r} that install an agent")
    lines = block["lines"].replace(f"'{said['what']}[agent]'", f"'{wheel}[agent]'")
    yield "agent", lines
    # "Install the controller in the same way, with `[controller,cli]`, ..."
    yield "controller", lines.replace("[agent]", "[controller,cli]").replace("agent", "controller")


def build_image(cache: Path, requests: EndRequests) -> Path:
    """Return the archive of an image of this checkout; build it where it is not there yet.

    Runs where package indexes can be reached, in namespaces of its own.
    Raises AskedToEndError, and CalledProcessError where it cannot be built.
    """
    wheel = _build_wheel(cache)
    content = wheel.read_bytes() + Path(__file__).read_bytes()
    built = cache / f"image-{hashlib.sha256(content).hexdigest()[:16]}.tar"
    if not built.exists():
        for old in cache.glob("image-*"):
            old.unlink()
        # Outside of its namespaces nothing is ever mounted there: it is removed without care.
        with tempfile.TemporaryDirectory(prefix="everstep-image-") as folder:
            build = [sys.executable, "-m", "field.machines.image", str(wheel), str(built), folder]
            code = run_isolated(build, requests)
        if code:
            built.with_suffix(".partial").unlink(missing_ok=True)
            requests.check()
            raise subprocess.CalledProcessError(code, build)
    return built


def unpack_image(built: Path, layer: Path) -> None:
    """Make the layer that all machines have in common."""
    layer.mkdir()
    subprocess.run(["tar", *_ALL_OF_IT, "-xf", str(built), "-C", str(layer)], check=True)
    _add_scripts(layer)


def _build_wheel(cache: Path) -> Path:
    """Build the wheel as `make dist` does."""
    cache.mkdir(parents=True, exist_ok=True)
    for old in cache.glob("*.whl"):
        old.unlink()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "--directory", str(cache)]
    subprocess.run(command, check=True, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
    (wheel,) = cache.glob("everstep-*.whl")
    return wheel


def _build(wheel: Path, built: Path, memory: Path) -> None:
    """Install into a layer upon this machine's root, and archive it."""
    layer = memory / "layer"
    with overlay([Path("/")], layer, memory / "building") as root:
        # What is enabled on this machine is not what a machine of the field runs.
        units = root / "etc/systemd/system"
        shutil.rmtree(units / "multi-user.target.wants", ignore_errors=True)
        (units / "multi-user.target").write_text(_TARGET)
        # At its first boot a machine would enable all that is installed.
        preset = root / "etc/systemd/system-preset/00-field.preset"
        preset.parent.mkdir(exist_ok=True)
        preset.write_text("disable *\n")
        for name in _MASKED:
            _link(units / f"{name}.service", "/dev/null")
        (units / "shared.mount").write_text(_SHARED)
        for folder in (
            "mnt/filer",
            "shared",
            "results",
            "dataset",
            WHEELS.strip("/"),
            "var/log/journal",
        ):
            (root / folder).mkdir(parents=True, exist_ok=True)
        inside = f"{WHEELS}/{wheel.name}"
        shutil.copy(wheel, root / inside.strip("/"))
        for daemon, lines in installation(_PAGE.read_text(), inside):
            _inside(root, lines)
            print(f"installed the {daemon}", flush=True)
        _inside(root, _TRAINING.format(wheel=inside))
        _inside(root, "systemctl enable shared.mount; systemctl disable everstep-controller")
        _add_users(root)
        _add_packages(root)
    partial = built.with_suffix(".partial")
    subprocess.run(["tar", *_ALL_OF_IT, "-cf", str(partial), "-C", str(layer), "."], check=True)
    partial.rename(built)


def _inside(root: Path, lines: str) -> None:
    # The interpreter of the system: units hide the folders of users, where another may live.
    path = "PATH=/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
    command = ["chroot", str(root), "env", "-i", path, "HOME=/root", "PIP_NO_INPUT=1"]
    # No systemd runs in there: units are enabled, and start when a machine is booted.
    command += ["SYSTEMD_OFFLINE=1", "sh", "-eu"]
    with _devices(root):
        done = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{lines}\n{done.stdout}{done.stderr}")


@contextmanager
def _devices(root: Path) -> Iterator[None]:
    mounts = [("proc", root / "proc"), ("devtmpfs", root / "dev")]
    for kind, place in mounts:
        subprocess.run(["mount", "-t", kind, kind, place], check=True)
    try:
        yield
    finally:
        for _, place in mounts:
            subprocess.run(["umount", "--lazy", place], check=True)


def _add_users(root: Path) -> None:
    lines = [
        f'u {name} {54330 + number} "A user" /home/{name}' for number, name in enumerate(USERS)
    ]
    (root / "etc/sysusers.d/users.conf").write_text("\n".join(lines) + "\n")
    homes = [f"d /home/{name} 0700 {name} {name}" for name in USERS]
    (root / "etc/tmpfiles.d/users.conf").write_text("\n".join(homes) + "\n")
    _inside(root, "systemd-sysusers; systemd-tmpfiles --create users.conf")


def _add_packages(root: Path) -> None:
    """Let a user's environment find what scripts import beside Everstep."""
    (packages,) = (root / "opt/training/lib").glob("python3*/site-packages")
    # A folder that a .pth file names is searched, and no .pth file in it is read: so the checkout,
    # which is installed there in place, is not found.
    found = [entry for entry in sys.path if entry.endswith("site-packages")]
    (packages / "surroundings.pth").write_text("\n".join(found) + "\n")


def _add_scripts(layer: Path) -> None:
    """Add the scripts of the jobs, and the library that sets a clock apart."""
    examples = [REPOSITORY / "examples" / name for name in EXAMPLES]
    for script in (*examples, *(REPOSITORY / "tests/field/jobs/scripts").glob("*.py")):
        _copy(script, layer / "opt/scripts")
    compiled = [
        "gcc",
        "-O2",
        "-shared",
        "-fPIC",
        "-o",
        str(layer / "opt/skew.so"),
        str(_SKEW),
        "-ldl",
    ]
    subprocess.run(compiled, check=True)


def _copy(source: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, folder)


@contextmanager
def overlay(below: list[Path], above: Path, work: Path) -> Iterator[Path]:
    """Mount a root of layers, of which the last one takes what is written."""
    root, scratch = work / "root", work / "work"
    for folder in (above, root, scratch):
        folder.mkdir(parents=True, exist_ok=True)
    lower = ":".join(map(str, below))
    layers = f"lowerdir={lower},upperdir={above},workdir={scratch}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, root], check=True)
    try:
        yield root
    finally:
        subprocess.run(["umount", "--lazy", root], check=True)


def _link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


if __name__ == "__main__":
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", sys.argv[3]], check=True)
    _build(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
