"""Ledger history: what each job's time had gone to so far, written down every few minutes."""

import json
import logging
from collections.abc import Iterator

from everstep_controller.journal.port import DAY_NS, LedgerRow
from everstep_controller.journal.sqlite.store import JournalStore

logger = logging.getLogger(__name__)

# Of days before these, the last row of a job is kept: that tells a day, and no hour of it.
_WHOLE_DAYS = 3
# Beside the categories, which all have other names.
_NODES, _FAILURES = "nodes", "failures"


def save_ledger(store: JournalStore, row: LedgerRow) -> None:
    """Write a row down; it outlives the job's place in the state."""
    content = {**row.totals, _NODES: row.nodes, _FAILURES: row.failures}
    store.execute(
        "INSERT OR REPLACE INTO ledger VALUES (?1, ?2, ?3, checksum(?1, ?2, ?3))",
        (row.job, row.at_ns, json.dumps(content, sort_keys=True).encode()),
    )


# The last row of each day, and those after which a job has another number of nodes: what lies
# between two of them sums up, and a fleet writes a hundred thousand rows in a day.
_TELLING_ROWS = """
WITH sound AS (SELECT * FROM ledger WHERE checksum IS checksum(job, at_ns, totals))
SELECT job, at_ns, totals FROM (
    SELECT job, at_ns, totals, nodes, lead(nodes) OVER later AS next_nodes,
        lead(at_ns) OVER later AS next_ns
    FROM (
        SELECT job, at_ns, totals, json_extract(CAST(totals AS TEXT), '$.nodes') AS nodes
        FROM sound WHERE at_ns >= ?1
    ) WINDOW later AS (PARTITION BY job ORDER BY at_ns)
) WHERE next_ns IS NULL OR next_ns / ?2 <> at_ns / ?2 OR next_nodes IS NOT nodes
UNION ALL
SELECT job, max(at_ns), totals FROM sound WHERE at_ns < ?1 AND job IN
    (SELECT job FROM sound WHERE at_ns >= ?1) GROUP BY job
ORDER BY 1, 2
"""


def ledger_rows(store: JournalStore, since_ns: int) -> Iterator[LedgerRow]:
    """Yield the rows from a time on that tell days apart, and of each job the last one before it.

    They come by job, and of each in the order of time. Rows that are damaged are left out.
    """
    damaged = "SELECT job, at_ns FROM ledger WHERE checksum IS NOT checksum(job, at_ns, totals)"
    for job, at_ns in store.query(damaged):
        logger.error("the ledger of %s at %d is left out: bits changed on the disk", job, at_ns)
    rows = store.query(_TELLING_ROWS, (since_ns, DAY_NS))
    for job, at_ns, content in rows:
        told = json.loads(content)
        nodes, failures = told.pop(_NODES, 1), told.pop(_FAILURES, 0)
        yield LedgerRow(job, at_ns, told, nodes, failures)


def thin_ledgers(store: JournalStore, before_ns: int) -> None:
    """Delete rows that are older, and of days that are over all but the last of each job."""
    store.execute("DELETE FROM ledger WHERE at_ns < ?", (before_ns,))
    (newest,) = next(iter(store.query("SELECT coalesce(max(at_ns), 0) FROM ledger")))
    over_ns = newest // DAY_NS * DAY_NS - _WHOLE_DAYS * DAY_NS
    store.execute(
        "DELETE FROM ledger WHERE at_ns < ?1 AND at_ns NOT IN (SELECT max(at_ns) FROM ledger "
        "AS other WHERE other.job = ledger.job GROUP BY other.at_ns / ?2)",
        (over_ns, DAY_NS),
    )
