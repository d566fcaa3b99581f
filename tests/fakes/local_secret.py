"""Channels to controllers that the tests start on loopback."""

import grpc


def admin_channel(port: int) -> grpc.aio.Channel:
    """Return a channel for the admin calls of a test."""
    return grpc.aio.insecure_channel(f"127.0.0.1:{port}")
