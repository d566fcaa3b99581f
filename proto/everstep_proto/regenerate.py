"""Stub generation from the .proto files: ``python -m everstep_proto.regenerate``."""

import subprocess
import sys
from pathlib import Path

PROTO_FOLDER = Path(__file__).resolve().parent.parent
GENERATED = PROTO_FOLDER / "everstep_proto" / "generated"


def regenerate(into: Path = GENERATED) -> None:
    """Write the stubs for every .proto file below ``into``. Raises CalledProcessError."""
    root = into.parent.parent
    # protoc's plugins are installed beside the interpreter, whose folder need not be in PATH.
    tools = Path(sys.executable).parent
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"-I{into.relative_to(root)}={PROTO_FOLDER}",
            f"--plugin=protoc-gen-mypy={tools / 'protoc-gen-mypy'}",
            f"--plugin=protoc-gen-mypy_grpc={tools / 'protoc-gen-mypy_grpc'}",
            f"--python_out={root}",
            f"--grpc_python_out={root}",
            f"--mypy_out={root}",
            f"--mypy_grpc_out={root}",
            *(
                f"{into.relative_to(root)}/{path.name}"
                for path in sorted(PROTO_FOLDER.glob("*.proto"))
            ),
        ],
        check=True,
        cwd=root,
    )


if __name__ == "__main__":
    regenerate()
