"""Options that all runs on booted machines have, and what they print of what they kept."""

import argparse
from pathlib import Path


def run_parser(prog: str, doc: str | None, machines: int, tracks: int) -> argparse.ArgumentParser:
    """Return a parser with these options, and a run's own numbers of machines and jobs."""
    parser = argparse.ArgumentParser(prog=prog, description=(doc or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="of all that is drawn by chance")
    parser.add_argument(
        "--machines", type=int, default=machines, help="the first is the controller's (%(default)s)"
    )
    parser.add_argument(
        "--memory-mib", type=int, default=3072, help="of each machine (%(default)s)"
    )
    parser.add_argument("--tracks", type=int, default=tracks, help="jobs at a time (%(default)s)")
    parser.add_argument(
        "--torch-ranks", type=int, default=8, help="alive at a time, at most (%(default)s)"
    )
    parser.add_argument("--folder", type=Path, help="where it is kept (in .venv/reports/field)")
    parser.add_argument("--report", action="store_true", help="only judge what is kept")
    parser.add_argument("--markdown", action="store_true", help="tables for a page")
    parser.add_argument("--json", action="store_true", help="figures, for docs/claims.md")
    return parser
