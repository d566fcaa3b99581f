"""File server rules: kernel messages of the clients of NFS, Lustre, SMB and Ceph."""

import re

from everstep_agent.detectors.kernel.rules.rule import LineRule
from everstep_common.judging.condition import HOUR_NS, Condition
from everstep_common.judging.findings import Mode, Severity, SuggestedAction

_QUIET_NS = HOUR_NS
_KERNEL = "kernel message"
_BOOT = "the node was rebooted"

CONDITIONS = (
    Condition(
        name="NfsServerSilent",
        component="disk/nfs:SERVER",
        meaning="an NFS server does not respond; its readers wait",
        source="the client asks for a minute before it says so",
        clears_when=f"the kernel says that the server is back, or {_BOOT}",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="NfsStateLost",
        component="disk/nfs:SERVER",
        meaning="an NFS client could not get back its open files and locks from the server: "
        "programs that used them get errors",
        source=_KERNEL,
        clears_when="no further message",
        quiet_ns=_QUIET_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="LustreConnectionLost",
        component="disk/lustre:TARGET",
        meaning="a Lustre client has lost the connection to a target; its readers wait",
        source=_KERNEL,
        clears_when=f"the client says that the connection is restored, or {_BOOT}",
        mode=Mode.ADVISE,
    ),
    Condition(
        name="LustreEvicted",
        component="disk/lustre:TARGET",
        meaning="a Lustre server has evicted this client: what was not written yet is lost",
        source=_KERNEL,
        clears_when="no further message",
        quiet_ns=_QUIET_NS,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="LustreError",
        component="disk/lustre",
        meaning="a Lustre client, or its network, reports that requests failed or timed out",
        source=_KERNEL,
        clears_when="no further message",
        quiet_ns=_QUIET_NS,
    ),
    Condition(
        name="LustreBug",
        component="disk/lustre",
        meaning="the Lustre client hit a bug (LBUG): the thread that did never goes on",
        source=_KERNEL,
        clears_when=_BOOT,
        mode=Mode.ADVISE,
    ),
    Condition(
        name="FileServerSilent",
        component="disk/SERVER",
        meaning="an SMB server or a Ceph daemon does not answer; its readers wait",
        source=_KERNEL,
        clears_when="no further message",
        quiet_ns=_QUIET_NS,
        mode=Mode.ADVISE,
    ),
)


def _nfs(
    needle: str, pattern: str, condition: str, message: str, *, ends: bool = False
) -> LineRule:
    return LineRule(
        needle=needle,
        pattern=re.compile(pattern),
        condition=condition,
        component="disk/nfs:{server}" if "server" in re.compile(pattern).groupindex else "disk/nfs",
        message=message,
        ends=ends,
    )


def _lustre(
    needle: str,
    pattern: str,
    condition: str,
    message: str,
    severity: Severity = Severity.DEGRADED,
    *,
    of_target: bool = True,
    ends: bool = False,
) -> LineRule:
    return LineRule(
        needle=needle,
        pattern=re.compile(pattern),
        condition=condition,
        component="disk/lustre:{target}" if of_target else "disk/lustre",
        message=message,
        severity=severity,
        action=SuggestedAction.REBOOT_NODE if severity is Severity.FATAL else SuggestedAction.WATCH,
        ends=ends,
    )


def _silent(needle: str, pattern: str, message: str) -> LineRule:
    return LineRule(
        needle=needle,
        pattern=re.compile(pattern),
        condition="FileServerSilent",
        component="disk/{server}",
        message=message,
    )


_SERVER = r"(?P<server>\S{1,255})"
# "167-0: ", "12345:0:(import.c:1290:ptlrpc_connect_interpret()) ", or both, or nothing.
_CALL = r"(?:[0-9a-f]{1,5}-[0-9a-f]{1,3}: )?(?:\d{1,9}:\d:\([^()]{1,120}(?:\(\))?\) )?"
_TARGET = r"(?P<target>MGC[\w.@:]{1,80}?|[\w.-]{1,80}?)(?:-(?:osc|mdc|lwp)\b[\w-]{0,40})?"

RULES = (
    _nfs(
        "not responding",
        rf"(?:nfs|lockd|rpcbind): server {_SERVER} not responding",
        "NfsServerSilent",
        "the NFS server {server} does not respond",
    ),
    _nfs(
        " OK",
        rf"(?:nfs|lockd): server {_SERVER} OK",
        "NfsServerSilent",
        "the NFS server {server} is back",
        ends=True,
    ),
    _nfs(
        "failed on NFSv4 server",
        rf"NFS: state manager.{{0,80}} failed on NFSv4 server {_SERVER} with error",
        "NfsStateLost",
        "state of the NFS server {server} could not be recovered",
    ),
    _nfs(
        "eclaim",
        r"NFSv?4?: (?:_*nfs4?_\w{0,40}(?:reclaim|recover)\w{0,40}: )?(?:Lock reclaim failed"
        r"|.{0,20}unhandled error|.{0,40}reclaim failed)",
        "NfsStateLost",
        "an NFS client could not get its open files or locks back",
    ),
    _nfs(
        "state recovery failed",
        r"NFSv?4?: .{0,40}state recovery failed for open file",
        "NfsStateLost",
        "an NFS client could not get its open files back",
    ),
    _nfs(
        "lease",
        rf"NFS: (?:nfs4_handle_reclaim_lease_error"
        rf"|.{{0,40}}lease).{{0,60}} error -?\d+ for server {_SERVER}",
        "NfsStateLost",
        "the NFS server {server} has ended the lease of this node",
    ),
    _lustre(
        "LBUG",
        rf"Lustre(?:Error)?: {_CALL}LBUG",
        "LustreBug",
        "the Lustre client hit a bug (LBUG)",
        Severity.FATAL,
        of_target=False,
    ),
    _lustre(
        "ASSERTION",
        rf"L(?:ustre|Net)Error: {_CALL}ASSERTION",
        "LustreBug",
        "the Lustre client hit a bug (assertion)",
        Severity.FATAL,
        of_target=False,
    ),
    _lustre(
        "evicted",
        rf"LustreError: {_CALL}{_TARGET}: This client was evicted by",
        "LustreEvicted",
        "Lustre's {target} has evicted this client; what was not written is lost",
    ),
    _lustre(
        "evict",
        rf"Lustre(?:Error)?: {_CALL}.{{0,80}}\bevict(?:ed|ing)\b",
        "LustreEvicted",
        "a Lustre server has evicted a client",
        of_target=False,
    ),
    _lustre(
        "onnection to",
        rf"Lustre(?:Error)?: {_CALL}{_TARGET}: Connection to .{{1,160}} was lost",
        "LustreConnectionLost",
        "the connection to Lustre's {target} was lost",
    ),
    _lustre(
        "onnection restored",
        rf"Lustre(?:Error)?: {_CALL}{_TARGET}: Connection restored",
        "LustreConnectionLost",
        "the connection to Lustre's {target} is back",
        ends=True,
    ),
    _lustre(
        "Request sent has",
        rf"Lustre(?:Error)?: {_CALL}@@@ Request sent has (?:timed out|failed)",
        "LustreError",
        "requests of the Lustre client timed out or failed",
        of_target=False,
    ),
    _lustre(
        "imed out",
        rf"L(?:ustre|Net)(?:Error)?: {_CALL}.{{0,80}}(?:Request sent has (?:timed out|failed)"
        rf"|[Tt]imed out tx|Timed out RDMA)",
        "LustreError",
        "requests of the Lustre client, or its network, timed out",
        of_target=False,
    ),
    _lustre(
        "LustreError: ",
        rf"LustreError: {_CALL}(?!dumping log|\d+ previous|Skipped).{{0,120}}(?:rc = -\d+|failed"
        rf"|rc -\d+)",
        "LustreError",
        "requests of the Lustre client failed",
        of_target=False,
    ),
    _lustre(
        "LNetError: ",
        rf"LNetError: {_CALL}(?!.{{0,20}}previous similar)\S",
        "LustreError",
        "the network of the Lustre client reports an error",
        of_target=False,
    ),
    _silent(
        "has not responded in",
        r"CIFS:? VFS: (?:Server )?(?P<server>\S{1,255}) has not responded in",
        "the SMB server {server} does not respond",
    ),
    _silent(
        "ceph: ",
        r"ceph: (?:\[[^\]]{1,80}\]: )?(?P<server>mds\d+) (?:hung|caps stale|reconnect denied)",
        "the Ceph daemon {server} does not answer",
    ),
    _silent(
        "session lost",
        r"libceph: (?P<server>mon\d+) .{1,80} session lost",
        "the Ceph daemon {server} does not answer",
    ),
)
