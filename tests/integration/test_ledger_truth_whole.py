"""The ledger of real scripts without the library, against what each has written down itself."""

import pytest

from integration.real_fleet import running_fleet
from integration.script_diaries import run_scripts

_SCRIPTS = 5


@pytest.mark.timeout(300)
def test_each_category_is_what_five_scripts_have_written_down_of_themselves() -> None:
    with running_fleet("node-1") as fleet:
        for one in run_scripts(fleet, _SCRIPTS):
            assert (len(one.history.killed_ns), one.ledger.failures) == (2, 2), fleet.logs()
            assert one.wrong == {}, (one.ledger.job, one.late_ns, one.told, one.true)
            assert one.ledger.steps == one.steps
            counted_ns = sum(one.true.get(name, 0) for name in ("productive", "slow.unattributed"))
            error = abs(one.ledger.ettr_time - counted_ns / one.ledger.wall_ns)
            assert error < 0.01 + one.late_ns / one.ledger.wall_ns
