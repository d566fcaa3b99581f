"""Restore: finds verified copies that together hold a rank's state, and fetches them."""
