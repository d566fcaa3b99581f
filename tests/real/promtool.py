"""What promtool says, for tests."""

import subprocess


def promtool(*arguments: str) -> tuple[int, str]:
    """Return promtool's exit status and its words, without "SUCCESS: "."""
    done = subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    said = done.stdout + done.stderr
    return done.returncode, (said.partition("SUCCESS: ")[2] or said).strip()
