"""Tokens of service accounts of the fake API server: for an audience and a pod, and reviewed."""

import itertools
from dataclasses import dataclass, field

from fakes.kubernetes.objects import Json, Key, Objects, RefusedError

_EXTRA = "authentication.kubernetes.io/"


@dataclass
class PodToken:
    """A token, and what it is for."""

    account: Key
    audiences: list[str]
    # Of the pod that it is bound to; none: of no pod.
    pod: str = ""
    uid: str = ""
    expired: bool = False


@dataclass
class PodTokens:
    """Tokens, by their texts. ``tells_nodes``: as Kubernetes from 1.30 on."""

    objects: Objects
    tells_nodes: bool = True
    made: dict[str, PodToken] = field(default_factory=dict)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def make(self, account: Key, body: Json) -> Json:
        """Answer a request for a token. Raises RefusedError."""
        self.objects.get("serviceaccounts", account)
        spec = body.get("spec") or {}
        bound = spec.get("boundObjectRef") or {}
        token = PodToken(account, spec.get("audiences") or ["https://kubernetes.default"])
        if bound:
            pod = self.objects.get("pods", (account[0], bound["name"]))
            if pod["spec"].get("serviceAccountName") != account[1]:
                raise RefusedError(400, "BadRequest", "cannot bind token for serviceaccount")
            token.pod, token.uid = bound["name"], pod["metadata"]["uid"]
        text = f"token-{next(self._numbers)}"
        self.made[text] = token
        return body | {"status": {"token": text, "expirationTimestamp": "2026-11-30T01:00:00Z"}}

    def review(self, body: Json) -> Json:
        """Answer the question whose a token is."""
        spec = body["spec"]
        return body | {"status": self._status(spec["token"], spec.get("audiences") or [])}

    def _status(self, text: str, audiences: list[str]) -> Json:
        token = self.made.get(text)
        if token is None:
            return {"user": {}, "error": "invalid bearer token"}
        shared = [one for one in audiences if one in token.audiences]
        if not shared:
            error = f"invalid bearer token, token audiences {token.audiences} are others"
            return {"user": {}, "error": error}
        if token.expired:
            return {"user": {}, "error": "invalid bearer token, service account token has expired"}
        extra: Json = {}
        if token.pod:
            try:
                pod = self.objects.get("pods", (token.account[0], token.pod))
            except RefusedError:
                pod = {"metadata": {"uid": ""}}
            if pod["metadata"]["uid"] != token.uid:
                error = "invalid bearer token, service account token has been invalidated"
                return {"user": {}, "error": error}
            extra = {f"{_EXTRA}pod-name": [token.pod], f"{_EXTRA}pod-uid": [token.uid]}
            if self.tells_nodes:
                extra[f"{_EXTRA}node-name"] = [pod["spec"]["nodeName"]]
        name = f"system:serviceaccount:{token.account[0]}:{token.account[1]}"
        user = {"username": name, "uid": "1", "groups": ["system:serviceaccounts"]}
        return {
            "authenticated": True,
            "user": user | ({"extra": extra} if extra else {}),
            "audiences": shared,
        }
