"""Local IPC: Unix sockets, frames on them, and the processes at their other end."""
