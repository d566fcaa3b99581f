"""``python -m everstep_agent.enrolment.enrol_pod``: gets a pod's node its certificate, and ends.

A process of its own, because what makes keys takes 15 MB and 0.1 s. Kubernetes vouches for the pod
and its node by the token of its service account, so nobody types one.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from everstep_agent.enrolment.certificate_files import CertificateFiles, FilesError
from everstep_agent.enrolment.client import EnrolmentClients, EnrolmentError
from everstep_proto.controllers import split_addresses
from everstep_proto.enrolment.certificate_requests import make_request
from everstep_proto.enrolment.messages import POD_PATH, CertificateReply, PodEnrolRequest

_TOKEN_BYTES_MAX = 16 << 10


def main(words: Sequence[str] | None = None) -> int:
    """Enrol once; return 0, or 1 with one sentence on standard error."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    for name in ("node", "address", "server_name"):
        parser.add_argument(name)
    parser.add_argument("authority", type=Path)
    parser.add_argument("token", type=Path)
    given = parser.parse_args(words)
    try:
        enrol_once(given)
    except (EnrolmentError, FilesError) as error:
        print(error, file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:
        what = getattr(error, "filename", None)
        why = getattr(error, "strerror", None) or error
        print(f"{what}: {why}" if what else str(why), file=sys.stderr)
        return 1
    return 0


def enrol_once(given: argparse.Namespace) -> None:
    """Ask for a certificate, and put it in place.

    Raises EnrolmentError, FilesError, OSError, ValueError.
    """
    token, authority = _token(given.token), _authority(given.authority)
    files = CertificateFiles(given.folder)
    files.prepare()
    key = files.joining_key()
    request = PodEnrolRequest(
        token=token,
        node=given.node,
        request=make_request(key, given.node).decode(),
        clock_s=time.time(),
    )
    client = EnrolmentClients(split_addresses(given.address), given.server_name)
    reply = client.ask(authority, POD_PATH, request, CertificateReply)
    files.install(key, reply, given.node)


def _token(path: Path) -> str:
    token = path.read_text(errors="replace").strip()
    if not token or not token.isascii() or len(token) > _TOKEN_BYTES_MAX:
        raise FilesError(
            f"{path} has no token in it: the pod needs a projected volume with a "
            "serviceAccountToken of audience: everstep (docs/kubernetes.md)"
        )
    return token


def _authority(path: Path) -> str:
    text = path.read_text(errors="replace")
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise FilesError(
            f"{path} has no certificate in it: the controller writes it into the ConfigMap that "
            "its enrolment.kubernetes_authority names"
        )
    return text


if __name__ == "__main__":
    sys.exit(main())
