"""A program of a site that isolates nodes: its scheduler is a JSON file. Run by the tests.

Arguments: the file, and how it behaves. Every call is appended to ``FILE.calls``.
"""

import json
import sys
import time
from pathlib import Path


def main() -> int:
    """Answer one call."""
    file, how = Path(sys.argv[1]), sys.argv[2]
    request = json.load(sys.stdin)
    with Path(f"{file}.calls").open("a") as calls:
        calls.write(json.dumps(request) + "\n")
    if how == "hang":
        time.sleep(3600)
    if how == "refuse" or Path(f"{file}.broken").exists():
        print("starting", "slurmctld does not answer", sep="\n", file=sys.stderr)
        return 3
    if how == "garbage":
        print("<html>\x1b[2J502 Bad Gateway</html>")
        return 0
    if how == "flood":
        while True:
            sys.stdout.write("x" * 65536)
    holds = json.loads(file.read_text()) if file.exists() else {}
    if request["call"] == "read":
        print(json.dumps({"holds": holds}))
        return 0
    print(json.dumps(apply(holds, request["wanted"])))
    file.with_suffix(".new").write_text(json.dumps(holds))
    file.with_suffix(".new").rename(file)
    return 0


def apply(
    holds: dict[str, dict[str, object]], wanted: dict[str, dict[str, object]]
) -> dict[str, object]:
    """Withhold or free what is wanted; leave alone what others hold."""
    failures, unmanaged = {}, []
    for node, one in wanted.items():
        if node == "unknown":
            failures[node] = "Invalid node name specified"
        elif node == "elsewhere":
            unmanaged.append(node)
        elif node in holds and not holds[node]["ours"]:
            continue
        elif one["withheld"]:
            holds[node] = {"reason": one["reason"], "ours": True}
        else:
            holds.pop(node, None)
    return {
        "now": {node: holds.get(node) for node in wanted if node not in {*failures, *unmanaged}},
        "failures": failures,
        "unmanaged": unmanaged,
    }


if __name__ == "__main__":
    sys.exit(main())
