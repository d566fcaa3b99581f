"""What verdicts on hangs were made of lies in a bounded folder, of its owner only."""

import gzip
import json
import os
from pathlib import Path

from everstep_common.hangs.node_reports import NodeTold
from everstep_common.hangs.reports.rank_report import ProcessEnding
from everstep_controller.inspection.evidence import HangEvidence, read_told

_ENDED = ProcessEnding(exit_code=0, signal=6, kind="collective_mismatch", text="32 vs 4")


def _told(number: int, size: int = 10) -> list[NodeTold]:
    noise = os.urandom(size).hex()
    return [
        NodeTold("n1", 1, 1, (), f"away {number}", ((1, _ENDED),)),
        NodeTold("n0", 0, 1, (json.dumps({"rank": 0, "of": noise}),)),
    ]


def test_what_nodes_told_is_kept_by_its_hash_and_of_its_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "hangs"
    told = _told(1)
    evidence = HangEvidence(folder)
    name = evidence.keep(evidence.write(told))
    file = folder / f"{name}.jsonl.gz"
    lines = [json.loads(line) for line in gzip.decompress(file.read_bytes()).splitlines()]
    assert [line["node"] for line in lines] == ["n0", "n1"]
    assert lines[0]["reports"] == list(told[1].reports)
    assert lines[1]["missing"] == "away 1"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert file.stat().st_mode & 0o777 == 0o600
    assert evidence.keep(evidence.write(list(reversed(told)))) == name
    assert [one.node for one in read_told(file)] == ["n0", "n1"]
    assert {*read_told(file)} == {*told}
    assert len(list(folder.iterdir())) == 1


def test_the_oldest_make_room_and_the_newest_stays_however_large(tmp_path: Path) -> None:
    evidence = HangEvidence(tmp_path, bytes_max=3000)
    names = []
    for number in range(5):
        names.append(evidence.keep(evidence.write(_told(number, size=1000))))
        os.utime(tmp_path / f"{names[-1]}.jsonl.gz", ns=(number, number))
    left = {file.name for file in tmp_path.iterdir()}
    assert left == {f"{name}.jsonl.gz" for name in names[-2:]}
    large = evidence.keep(evidence.write(_told(9, size=10_000)))
    assert {file.name for file in tmp_path.iterdir()} == {f"{large}.jsonl.gz"}
