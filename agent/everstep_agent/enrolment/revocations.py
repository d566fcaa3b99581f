"""Revocations: the certificates that no longer count, as the controller said last."""

import json
import logging
import ssl
from collections.abc import Callable, Mapping
from typing import cast

from everstep_common.codec import CodecError, from_json, json_text
from everstep_common.orders import RevokedCertificates

logger = logging.getLogger(__name__)

NOTE = "revoked"
_Subject = tuple[tuple[tuple[str, str], ...], ...]


class Revocations:
    """The list, which outlives the agent; none counts before a controller has told one."""

    def __init__(self, kept: str = "", keep: Callable[[str], None] = lambda _: None) -> None:
        self._keep = keep
        self._text = kept
        self._take(_read(kept))

    def replace(self, told: RevokedCertificates) -> None:
        """Take a new list in place of the one before."""
        text = json_text(told)
        if text == self._text:
            return
        self._take(told)
        self._text = text
        self._keep(text)

    def trouble(self, name: str, serial: str, since_s: float) -> str:
        """Return why a certificate counts no more, by its holder, serial and beginning; or ""."""
        if serial in self._serials or since_s <= self._nodes.get(name, float("-inf")):
            return f"the certificate of {name} was revoked; 'everstep nodes certificates' says why"
        return ""

    def trouble_of(self, shown: Mapping[str, object]) -> str:
        """Return it of what `ssl` tells of a peer's certificate."""
        if not shown or not (self._serials or self._nodes):
            return ""
        subject = cast("_Subject", shown.get("subject", ()))
        names = [value for part in subject for key, value in part if key == "commonName"]
        serial = str(shown.get("serialNumber", "")).lower().lstrip("0")
        since_s = ssl.cert_time_to_seconds(str(shown["notBefore"]))
        return self.trouble(names[0] if names else "", serial, since_s)

    def _take(self, told: RevokedCertificates) -> None:
        self._serials = frozenset(told.serials)
        self._nodes = {one.node: float(one.until_s) for one in told.nodes}


def _read(text: str) -> RevokedCertificates:
    if not text:
        return RevokedCertificates()
    try:
        return from_json(RevokedCertificates, json.loads(text))
    except (CodecError, ValueError) as error:
        logger.warning("the list of revoked certificates is read anew: %s", error)
        return RevokedCertificates()
