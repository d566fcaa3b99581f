"""Standby: a controller that follows the journal of another one, and succeeds it."""
