"""Write the boards of Grafana: `python monitoring`."""

import sys

from boards.files import files


def main() -> int:
    """Write what is not as it should be."""
    for path, text in files():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"written: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
