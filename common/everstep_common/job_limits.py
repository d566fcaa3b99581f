"""Limits of what a job may ask for: what is wrong with a size, a place, a range of data. Pure.

The agent says it to whoever asks, the controller when a record says so all the same. Each function
returns a sentence with the option to change, or None.
"""


def nodes_problem(nodes_min: int, nodes_max: int) -> str | None:
    """Return what is wrong with the least and the most nodes of a job."""
    if 1 <= nodes_min <= nodes_max:
        return None
    return f"--nnodes {nodes_min}:{nodes_max}: expected MIN:MAX from 1 up, MIN not above MAX"


def processes_problem(processes_per_node: int) -> str | None:
    """Return what is wrong with the number of a node's processes."""
    if processes_per_node >= 1:
        return None
    return f"--nproc-per-node {processes_per_node}: expected at least 1 process on each node"


def replica_problem(replica_nodes: int, nodes_min: int, nodes_max: int) -> str | None:
    """Return what is wrong with the number of nodes that hold one copy of the model; 0 is 1."""
    nodes = replica_nodes or 1
    if nodes >= 1 and not nodes_min % nodes and not nodes_max % nodes:
        return None
    return (
        f"--nodes-per-replica {replica_nodes}: expected a number that divides both ends of "
        f"--nnodes {nodes_min}:{nodes_max}"
    )


def size_problem(
    nodes_min: int, nodes_max: int, processes_per_node: int, replica_nodes: int
) -> str | None:
    """Return what is wrong with the size of a job."""
    return (
        nodes_problem(nodes_min, nodes_max)
        or processes_problem(processes_per_node)
        or replica_problem(replica_nodes, nodes_min, nodes_max)
    )


def storage_problem(path: str) -> str | None:
    """Return what is wrong with the place where a job's state is stored."""
    return None if path else "--persist '': expected a folder or s3://bucket/prefix"


def range_problem(first: int, last: int) -> str | None:
    """Return what is wrong with a range of data that is to be left out."""
    if first <= last:
        return None
    return f"skip {first} to {last}: expected a range that does not end before it begins"
