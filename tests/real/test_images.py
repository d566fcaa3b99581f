"""Images of agent and controller: built twice, run by runc as pods are, and what they see there."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from everstep_common.version import VERSION
from everstep_controller.drivers.kubernetes.config import KubernetesDriverConfig
from everstep_controller.drivers.kubernetes.rights import PodEnrolment
from fakes.kubernetes.site import fake_cluster
from fakes.waits import wait_until
from kubernetes_suite.cluster import Cluster
from real.images import Bundle, Pod, unpacked

_NEEDS = ("runc", "umoci", "dpkg-deb", "apt-get")
_REPOSITORY = Path(__file__).parents[2]
_AGENT_CAPABILITIES = ("SYSLOG", "SETUID", "SETGID", "KILL")


def _missing() -> str:
    if os.geteuid():
        return "needs root"
    absent = [name for name in _NEEDS if shutil.which(name) is None]
    return f"not installed: {', '.join(absent)} (apt: runc umoci)" if absent else ""


pytestmark = [
    pytest.mark.real,
    pytest.mark.long,  # they are built twice, which takes minutes
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("images"),
    pytest.mark.skipif(bool(_missing()), reason=_missing()),
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="images have Python 3.11"),
]


def _build(out: Path) -> None:
    command = [sys.executable, "packages", "images", "--out", str(out), "--arch", "amd64"]
    environ = {**os.environ, "SOURCE_DATE_EPOCH": "1795000000"}
    subprocess.run(command, cwd=_REPOSITORY, env=environ, check=True)


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("images")
    _build(out)
    return out


def _archive(release: Path, name: str) -> Path:
    return release / f"everstep-{name}_{VERSION}_amd64.oci.tar"


@pytest.fixture(scope="module")
def agent(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bundle]:
    folder = tmp_path_factory.mktemp("agent")
    yield unpacked(_archive(release, "agent"), VERSION, folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def controller(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bundle]:
    folder = tmp_path_factory.mktemp("controller")
    yield unpacked(_archive(release, "controller"), VERSION, folder)
    shutil.rmtree(folder)


def _agent_pod(*args: str, **more: object) -> Pod:
    """Return a pod as the base's DaemonSet makes it."""
    given: dict[str, object] = {
        "capabilities": _AGENT_CAPABILITIES,
        "host_pid": True,
        "host_network": True,
    }
    return Pod(args=args, **(given | more))  # type: ignore[arg-type]


def test_the_same_source_gives_the_same_digest(release: Path, tmp_path: Path) -> None:
    _build(tmp_path / "again")
    for one in sorted(release.iterdir()):
        assert one.read_bytes() == (tmp_path / "again" / one.name).read_bytes(), one.name


def test_each_blob_has_the_hash_by_which_it_is_named(release: Path) -> None:
    with tarfile.open(_archive(release, "agent")) as archive:
        index = json.load(archive.extractfile("index.json") or pytest.fail("no index"))
        blobs = [one for one in archive.getmembers() if one.name.startswith("blobs/")]
        for one in blobs:
            content = archive.extractfile(one)
            assert content is not None
            assert hashlib.sha256(content.read()).hexdigest() == one.name.rpartition("/")[2]
    assert index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"] == VERSION


def test_there_is_no_shell_and_nothing_that_gives_rights(agent: Bundle) -> None:
    root = agent.folder / "rootfs"
    assert sorted(path.name for path in (root / "usr/bin").iterdir()) == ["python3.11"]
    rights = [path for path in root.rglob("*") if path.is_file() and path.stat().st_mode & 0o6000]
    assert rights == []
    assert (root / "usr/share/doc/libc6/copyright").exists()
    assert "Package: libssl3" in (root / "var/lib/dpkg/status.d/libssl3").read_text()


def test_the_programs_of_both_start_from_a_root_that_nobody_writes(
    agent: Bundle, controller: Bundle
) -> None:
    done = agent.run("version", Pod(args=["--version"]))
    assert done.stdout == f"everstep-agent {VERSION}\n", done.stderr
    done = controller.run("help", Pod(args=["--help"]))
    assert "Judges, isolates, recovers and accounts for a fleet of nodes." in done.stdout
    shown = controller.run("cli", Pod(command=["everstep", "--version"]))
    assert shown.stdout == f"everstep {VERSION}\n", shown.stderr
    who = controller.run("who", Pod(command=["python", "-c", "import os; print(os.getuid())"]))
    assert who.stdout == "65532\n", who.stderr


def test_the_controller_makes_its_cluster_without_a_right(
    controller: Bundle, tmp_path: Path
) -> None:
    base = _REPOSITORY / "kubernetes/base"
    state, config = tmp_path / "state", tmp_path / "config"
    for folder in (state, config):
        folder.mkdir()
    os.chown(state, 65532, 65532)
    shutil.copy(base / "controller.toml", config)
    mounts = {"/etc/everstep": config, "/var/lib/everstep-controller": state}
    words = [
        *("init", "--config=/etc/everstep/controller.toml"),
        *("--operators=/var/lib/everstep-controller/operators", "--name=localhost"),
        "--viewer=prometheus",
    ]
    for _ in range(2):  # as each start of the pod does
        done = controller.run("init", Pod(args=words, mounts=mounts))
        assert done.returncode == 0, done.stdout + done.stderr
        assert "controller.toml has what is needed" in done.stdout
    assert sorted(path.name for path in (state / "operators").iterdir()) == [
        "admin.pem",
        "ca.pem",
        "prometheus.pem",
    ]
    assert (state / "tls/ca.key").stat().st_mode & 0o777 == 0o600


def test_the_agent_reads_the_kernels_log_without_the_device(agent: Bundle) -> None:
    seen = agent.run("seen", _agent_pod("check", "--own-probes", "--only", "kernel"))
    assert seen.returncode == 0, seen.stdout + seen.stderr
    assert "kernel_log" not in seen.stdout
    # Mounted, the device is refused by the cgroup; the call reads all the same.
    mounted = _agent_pod("check", "--own-probes", "--only", "kernel", devices=("/dev/kmsg",))
    assert "kernel_log" not in agent.run("mounted", mounted).stdout
    # Of file systems and of crashes it sees what the pod has, and says so.
    inside = _agent_pod("check", "--own-probes", env={"KUBERNETES_SERVICE_HOST": "10.96.0.1"})
    told = " ".join(agent.run("inside", inside).stdout.split())
    assert "blind file systems this agent is a pod, and sees only those" in told
    assert "blind pstore this agent is a pod, and /sys/fs/pstore" in told
    # Without the capability it says which it takes.
    blind = _agent_pod("check", "--own-probes", "--only", "kernel", capabilities=())
    told = agent.run("blind", blind).stdout
    assert "CAP_SYSLOG" in told, told


def test_the_agent_sees_the_hosts_processes_and_links(agent: Bundle) -> None:
    code = (
        "import os; print(open('/proc/1/comm').read().strip(), *sorted(os.listdir("
        "'/sys/class/net')))"
    )
    done = agent.run("looks", _agent_pod(command=["python", "-c", code]))
    links = sorted(os.listdir("/sys/class/net"))
    assert done.stdout.split() == [Path("/proc/1/comm").read_text().strip(), *links], done.stderr


def test_an_agents_pod_enrols_at_the_controllers_pod_and_is_shown(
    agent: Bundle, controller: Bundle, tmp_path: Path
) -> None:
    """Both images as the base runs them; of the cluster only the API server is not a real one."""
    cluster, fake = fake_cluster(tmp_path)
    try:
        _play_cluster(agent, controller, tmp_path, cluster)
    finally:
        cluster.human.client.close()
        fake.stop()


def _play_cluster(agent: Bundle, controller: Bundle, folder: Path, cluster: Cluster) -> None:
    human, driver = cluster.human, KubernetesDriverConfig(access=str(cluster.kubeconfig))
    human.make_account("everstep", "everstep-agent")
    human.make_config_map("everstep", "everstep-authority")
    places = ("everstep/everstep-agent",), "everstep/everstep-authority"
    human.apply(driver.rbac("everstep", enrolment=PodEnrolment(*places)))
    uid = human.make_pod("everstep", "agent-1", "gpu-1", "everstep-agent")
    state, config, own, scratch = (folder / one for one in ("state", "config", "own", "tmp"))
    for one in (
        state,
        config,
        scratch,
        own,
        own / "data",
        own / "run",
        own / "authority",
        own / "token",
    ):
        one.mkdir()
    scratch.chmod(0o1777)
    os.chown(state, 65532, 65532)
    for name in ("ca.crt", "kubeconfig", "token"):
        if (folder / name).is_file():
            shutil.copy(folder / name, config)
    _write_configurations(config, own)
    mounts = {"/etc/everstep": config, "/var/lib/everstep-controller": state}
    mounts |= {"/tmp": scratch}
    tls = "/var/lib/everstep-controller/operators"
    env = {
        "EVERSTEP_CONTROLLER": f"localhost:{_AGENTS}",
        "EVERSTEP_TLS_CA": f"{tls}/ca.pem",
        "EVERSTEP_TLS_CERTIFICATE": f"{tls}/admin.pem",
        "EVERSTEP_TLS_KEY": f"{tls}/admin.pem",
    }
    words = ("--config=/etc/everstep/controller.toml",)
    init = ("init", *words, f"--operators={tls}", "--name=localhost")
    made = controller.run("init", Pod(args=init, mounts=mounts))
    assert made.returncode == 0, made.stdout + made.stderr
    pod = Pod(args=words, mounts=mounts, host_network=True, env=env)
    with controller.running("everstep-controller", pod, folder / "controller.log"):

        def authority() -> str:
            found: str = human.config_map("everstep", "everstep-authority").get("ca.pem", "")
            return found

        wait_until(authority, 120.0, "no authority in the ConfigMap")
        (own / "authority/ca.pem").write_text(authority())
        token = human.token("everstep/everstep-agent", "everstep", "agent-1", uid)
        (own / "token/token").write_text(token)
        seen = _agent_pod(
            *("hold", "--", "everstep-agent", "--config=/etc/everstep/agent.toml"),
            mounts={
                "/etc/everstep": own,
                "/etc/everstep/authority": own / "authority",
                "/var/run/secrets/everstep": own / "token",
                "/run/everstep-agent": own / "run",
                "/var/lib/everstep-agent": own / "data",
                "/tmp": scratch,
            },
            env={"NODE_NAME": "gpu-1", "HOST_IP": "127.0.0.1", "KUBERNETES_SERVICE_HOST": "::1"},
        )

        def shown() -> bool:
            told = controller.exec("everstep-controller", "everstep", "nodes")
            return "1 node:" in told.stdout

        with agent.running("everstep-agent", seen, folder / "agent.log"):
            wait_until(shown, 120.0, "no node")
            node = controller.exec("everstep-controller", "everstep", "node", "gpu-1").stdout
            assert "this agent is a pod, and sees only those that are mounted into it" in node
            check = agent.exec("everstep-agent", "everstep-agent", "check")
            assert "file systems" in check.stdout, check.stdout + check.stderr
            events = controller.exec("everstep-controller", "everstep", "events").stdout
            assert "as pod everstep/agent-1" in " ".join(events.split())


_AGENTS, _ENROLMENT, _METRICS = 47433, 47438, 47434


def _write_configurations(config: Path, own: Path) -> None:
    """Write the base's configurations, for ports and an API server on loopback."""
    base = _REPOSITORY / "kubernetes/base"
    changes = {
        ":7433": f":{_AGENTS}",
        ":7434": f":{_METRICS}",
        ":7438": f":{_ENROLMENT}",
        ":7437": ":47437",
        ":7435": ":47435",
        "everstep-controller.everstep.svc": "localhost",
        '"in-cluster"': '"/etc/everstep/kubeconfig"',
    }
    for source, target in ((base / "controller.toml", config), (base / "agent.toml", own)):
        text = source.read_text()
        for before, after in changes.items():
            text = text.replace(before, after)
        (target / source.name).write_text(text)
    kubeconfig = yaml.safe_load((config / "kubeconfig").read_text())
    (row,) = kubeconfig["clusters"]
    row["cluster"]["certificate-authority"] = "ca.crt"
    (config / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
    for file in config.iterdir():
        file.chmod(0o644)
