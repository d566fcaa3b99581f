"""Report quantities: each number, name and text that is reported, with its bounds and unit."""

from typing import Annotated

from everstep_common.bounds import Bytes, Digest, Integer, Items, Name, Opaque, Text
from everstep_common.compute_time import PACKED_MAX

# Steps and generations name folders of up to 18 digits; this also leaves room to count on.
NUMBER_MAX = 10**18 - 1
# The largest count of a 32-bit integer with a sign.
COUNT_MAX = 2**31 - 1
# What a user's processes and files may say of a generation or a step: whoever counts on from there
# stays below `NUMBER_MAX`, beyond which nothing could be ordered or reported any more.
TOLD_MAX = 9 * 10**17
# More than any job has: the largest that are known train on 16,384 ranks, of 16 a node; a node of
# many CPUs starts one for each of them. What is told of a job is counted rank by rank.
RANKS_MAX = 200_000
RANKS_OF_NODE_MAX = 4096
# GPUs of a node that are compared with those of other nodes.
GPUS_OF_NODE_MAX = 32
# Ports for RDMA of a node that are compared with those of other nodes.
PORTS_OF_NODE_MAX = 64
NODES_MAX = 100_000
# Batches that a job leaves out in its whole life; more is a job that needs another data set.
RANGES_MAX = 1000

# Names end up in file names, metric labels and command lines.
JobName = Annotated[
    str,
    Name(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}",
        200,
        "a name of 1 to 200 letters, digits, '.', '_' and '-'",
        option="--job",
    ),
]
HostName = Annotated[
    str,
    Name(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}", 253, "a name of letters, digits, '.', '_' and '-'"),
]
# What job_ids makes of a name and a number; "" where it is not known yet.
JobId = Annotated[
    str, Name(r"(|[A-Za-z0-9][A-Za-z0-9._-]{0,199}-[0-9]{1,18})", 219, "an id such as NAME-1042")
]
Generation = Annotated[int, Integer(0, NUMBER_MAX)]
Step = Annotated[int, Integer(0, NUMBER_MAX)]
ToldGeneration = Annotated[int, Integer(0, TOLD_MAX)]
ToldStep = Annotated[int, Integer(0, TOLD_MAX)]
Batch = Annotated[int, Integer(0, NUMBER_MAX)]
Rank = Annotated[int, Integer(0, RANKS_MAX - 1)]
# How many ranks a job has, or a node of it.
Ranks = Annotated[int, Integer(0, RANKS_MAX)]
RanksOfNode = Annotated[int, Integer(0, RANKS_OF_NODE_MAX)]
Nodes = Annotated[int, Integer(0, NODES_MAX)]
Count = Annotated[int, Integer(0, COUNT_MAX)]
Pid = Annotated[int, Integer(0, COUNT_MAX)]
Uid = Annotated[int, Integer(0, 2**32 - 1)]
Port = Annotated[int, Integer(0, 65535)]
ExitCode = Annotated[int, Integer(-(2**31), COUNT_MAX)]
Signal = Annotated[int, Integer(0, COUNT_MAX)]
SizeBytes = Annotated[int, Integer(0, 2**62, unit="bytes")]
# CLOCK_BOOTTIME of the node that saw it; 0: when it was reported.
BootNs = Annotated[int, Integer(0, NUMBER_MAX, unit="ns")]
# As `compute_time` packs it.
PackedComputeTime = Annotated[int, Integer(0, PACKED_MAX)]
DurationNs = Annotated[int, Integer(0, NUMBER_MAX, unit="ns")]

# The controller's own timeline.
TimelineNs = Annotated[int, Integer(0, 2**63 - 1, unit="ns")]
# Key for bulk transfers of a job between agents; empty where there is none.
TransferKey = Annotated[bytes, Bytes(64)]

# Texts for people, by length: a word, a sentence, a line of output, some lines of evidence.
Word = Annotated[str, Text(40)]
Title = Annotated[str, Text(200)]
Line = Annotated[str, Text(500)]
OutputLine = Annotated[str, Text(2000)]
Evidence = Annotated[str, Text(4096)]

# Texts that are opened or compared, and so never cut.
Place = Annotated[str, Opaque(1, 4096, "a folder or s3://bucket/prefix", option="--persist")]
Key = Annotated[str, Opaque(1, 4096, "an id of 1 to 4096 characters")]
# Kept and sent as its hash only; "" is refused by who asks for it.
Token = Annotated[str, Opaque(0, 65_536, "a token without NUL", option="--token-file")]
TokenHash = Annotated[str, Name(r"[0-9a-z]{1,64}", 64, "the hash of a token")]
# What storage has of the id of a job or of a cluster; "" where it says none.
StoredId = Annotated[str, Opaque(0, 256, "an id of at most 256 characters")]
# By it nodes know whether they write to one folder or to two of one name.
StorageId = Annotated[str, Name(r"|[0-9a-f]{32}", 32, "the id of a folder")]
HashBytes = Annotated[bytes, Bytes(64, least=1)]
HashBytesOrNone = Annotated[bytes, Bytes(64)]
Hash = Annotated[str, Digest(64)]
# "" where there is none, or none yet.
HashOrNone = Annotated[str, Digest(64, least_bytes=0)]
NodeName = Annotated[str, Opaque(0, 4096, "the name of a node")]
Address = Annotated[str, Opaque(0, 4096, "a host or host:port")]
# Processes that a node holds in its kernel; more of them explain nothing more.
Pids = Annotated[tuple[Pid, ...], Items(64)]
# Devices of a node, as findings name them (gpu/0000:3b:00.0).
Devices = Annotated[tuple[Title, ...], Items(64)]
