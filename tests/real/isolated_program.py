"""Program of a test in namespaces of its own: a mount, a daemon, and what SIGTERM does.

isolated_program.py FOLDER ends|stays
"""

import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(5)


def main() -> None:
    folder = Path(sys.argv[1])
    signal.signal(signal.SIGTERM, _end if sys.argv[2] == "ends" else signal.SIG_IGN)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", folder], check=True)
    # As a machine: a container with processes of its own, that has left the session.
    line = ["unshare", "--pid", "--fork", "sh", "-c", "sleep 1000; :", str(folder)]
    subprocess.Popen(line, start_new_session=True)
    print("under way", flush=True)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
