"""Schedulers, groups and policies of a small fleet, as the command line would be told of them."""

from everstep_proto.generated import admin_pb2
from fakes.cli_fleet import NOW_NS

_SECOND = 1_000_000_000

SLURM = admin_pb2.DriverLine(
    driver="slurm", nodes=4, held_ours=1, held_by_others=2, age_s=12.4,
    waiting=["node-2", "node-3"], waiting_since_ns=NOW_NS - 95 * _SECOND,
    failures=3, failure="slurmctld does not answer", failed_calls=7,
)  # fmt: skip
KUBERNETES = admin_pb2.DriverLine(driver="kubernetes", nodes=1, failed_calls=2)

# One node at four schedulers: withheld for Everstep, by others, not told yet, and not its own.
VIEWS = (
    admin_pb2.SchedulerView(
        driver="command", state="idle", age_s=0.6, held="automation: Xid 79", ours=True
    ),
    admin_pb2.SchedulerView(
        driver="kubernetes", state="Ready", work=["ml/llama-0", "ml/llama-1"], age_s=3,
        held="ann: new cables",
    ),
    admin_pb2.SchedulerView(driver="slurm", waiting_since_ns=NOW_NS - 70 * _SECOND),
    admin_pb2.SchedulerView(driver="other", state="mixed", age_s=61, elsewhere=True),
)  # fmt: skip

POLICY = admin_pb2.PolicyReply(
    kind="node",
    mode="advise",
    budgets="1 of 2 working nodes isolated",
    lines=[
        admin_pb2.PolicyLine(
            subject="XidFatal", mode="enforce", nodes=1,
            rules=[
                admin_pb2.PolicyRule(place="[groups.row-1] enforce", says="enforce", decides=True),
                admin_pb2.PolicyRule(place="core.mode", says="advise"),
            ],
        )
    ],
    groups=[
        admin_pb2.GroupLine(group="row-1", nodes=512, says=["mode enforce", "drivers: slurm"]),
        admin_pb2.GroupLine(group="logins", nodes=2),
    ],
)  # fmt: skip

OUTCOMES = (
    admin_pb2.WhatIfLine(
        condition="XidFatal", found=12, isolated=[f"node-{n}" for n in range(1, 11)],
        held_back=["node-11", "node-12"], why="the budget of domain row-1", by_itself=2,
        within_ns=600 * _SECOND, done=1,
    ),
    admin_pb2.WhatIfLine(condition="LinkDown", found=1, held_back=["node-9"], why="the budget"),
    admin_pb2.WhatIfLine(condition="", found=13),
)  # fmt: skip
