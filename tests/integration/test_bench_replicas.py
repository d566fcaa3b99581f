"""The benchmarks of replicas move real copies between two agents' processes, small ones here."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from harness.table import Row
from vault import tls
from vault.raw import raw_pair
from vault.replication import Replication

from fakes.authority import Authority

pytestmark = pytest.mark.timeout(300)
_BYTES = 1 << 20


def test_a_copy_is_moved_raw_plain_and_inside_tls_and_each_has_its_rows(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    for name in ("node-1", "node-2"):
        authority.issue(name, "agent")
    with ExitStack() as stack:
        raw = stack.enter_context(raw_pair(_BYTES))
        plain, inside = Replication(stack, _BYTES), Replication(stack, _BYTES, tmp_path)
        found = [(raw.move(), plain.move(step), inside.move(step)) for step in (1, 2)]
    assert all(one.seconds > 0 for moves in found for one in moves)
    rows: list[Row] = list(tls._figures(found))
    assert [one.against for one in rows[:4]] == [
        *("", "raw sendfile, one stream", "raw sendfile, one stream"),
        "replica of 0.5 GiB",
    ]
    assert sum("CPU of the" in one.name for one in rows) == 6
