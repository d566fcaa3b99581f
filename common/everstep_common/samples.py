"""Sample columns: the fixed, versioned order in which agents pack a node's measurements."""

SCHEMA = 1

# One 32-bit float each; NaN where the node could not read it. Append only, and raise SCHEMA.
COLUMNS: tuple[str, ...] = (
    "cpu_busy_ratio",
    "load_1m",
    "memory_available_bytes",
    "disk_read_bytes_per_s",
    "disk_write_bytes_per_s",
    "network_received_bytes_per_s",
    "network_sent_bytes_per_s",
    "network_errors_per_s",
    "gpu_count",
    "gpu_busy_ratio_mean",
    "gpu_temperature_c_max",
    "gpu_power_w_sum",
    "agent_cpu_ratio",
    "agent_memory_bytes",
)
