"""Install benchmark: what it costs to bring a fleet's nodes in, and to keep their certificates.

"enrolments": a controller that `everstep-controller init` made, with real TLS on loopback. 2,000
nodes enrol within a minute, each as `everstep-agent join` does; their agents connect; all
certificates are renewed within ten seconds while the streams are open; and strangers send wrong
tokens as fast as they can while nodes renew. "keys": a key and a request for a certificate, by the
library and by the program.
"""

import argparse

from harness.session import Benchmark, Part
from install import enrolments, keys


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", type=int, default=2000, metavar="N", help="size of the fleet")
    parser.add_argument(
        "--within", type=float, default=60.0, metavar="S", help="in what time they enrol"
    )


BENCHMARK = Benchmark(
    about=__doc__ or "",
    parts=[
        Part("enrolments", 200.0, enrolments.measure),
        Part("keys", 20.0, keys.measure),
    ],
    repeats=5,
    add_options=_add_options,
    quick={"nodes": 50, "within": 5.0, "repeats": 1},
)
