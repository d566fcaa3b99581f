"""Agent benchmark: its cost on a node, and the time until the controller knows of a fault.

Everything runs on this machine, one after another: the agent of a faked node of 8 GPUs and 8 HCAs
(the tests' driver library and sysfs tree), an agent of the machine as it is, and node-exporter;
each agent is connected to a real controller.
"""

from agent import cost, latency
from harness.session import Benchmark, Part

BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[
        Part("cost", 320.0, lambda given: cost.measure(given.seconds, given.repeats)),
        *(
            Part(name, seconds, lambda given, name=name: latency.measure(name, given.faults))  # type: ignore[misc]
            for name, seconds in (
                *(("bare", 40.0), ("xid", 45.0), ("link", 60.0)),
                *(("ecc", 25.0), ("hca", 45.0), ("respawn", 60.0)),
            )
        ),
    ],
    repeats=5,
    seconds=10.0,
    add_options=lambda parser: parser.add_argument(
        "--faults", type=int, default=200, help="faults of each kind"
    ),
    quick={"seconds": 3.0, "repeats": 2, "faults": 20},
)
