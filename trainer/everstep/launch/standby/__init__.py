"""Warm standbys: processes that have imported what a rank needs, and wait to become one."""
