"""Rendering of kubernetes/ by kubectl: the base, the example, and the base with component cdi."""

import subprocess
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "kubernetes"
_WITH_CDI = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../base]
components: [../components/cdi]
"""


def rendered(name: str, folder: Path) -> str:
    """Return what kubectl makes of one of them; ``folder`` is for a copy."""
    place = FOLDER / name
    if name == "cdi":
        # kustomize wants what it reads to lie beside one another.
        copy = folder / "kubernetes"
        if not copy.exists():
            copy.mkdir()
            for part in ("base", "components"):
                subprocess.run(["cp", "-r", FOLDER / part, copy / part], check=True)
            (copy / "cdi").mkdir()
            (copy / "cdi/kustomization.yaml").write_text(_WITH_CDI)
        place = copy / "cdi"
    done = subprocess.run(
        ["kubectl", "kustomize", place], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
