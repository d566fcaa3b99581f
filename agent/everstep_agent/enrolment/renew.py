"""``python -m everstep_agent.enrolment.renew``: renews a node's certificate once, and ends.

A process of its own, because what makes keys takes 15 MB and 0.1 s, once in ten days.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from everstep_agent.enrolment.certificate_files import CertificateFiles, FilesError
from everstep_agent.enrolment.client import EnrolmentClients, EnrolmentError
from everstep_proto.controllers import split_addresses
from everstep_proto.enrolment.certificate_requests import RequestError, new_key
from everstep_proto.enrolment.messages import RENEW_PATH, CertificateReply


def main(words: Sequence[str] | None = None) -> int:
    """Renew; return 0, or 1 with one sentence on standard error."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("node")
    parser.add_argument("address")
    parser.add_argument("server_name")
    given = parser.parse_args(words)
    files = CertificateFiles(given.folder)
    try:
        key = new_key()
        request = files.renewal(key, given.node, time.time())
        client = EnrolmentClients(split_addresses(given.address), given.server_name)
        trusted = files.authorities.read_text()
        files.install(key, client.ask(trusted, RENEW_PATH, request, CertificateReply), given.node)
    except (EnrolmentError, FilesError, RequestError, OSError, ValueError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
