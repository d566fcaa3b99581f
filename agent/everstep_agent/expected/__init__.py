"""The expected inventory: written from what is there now, compared with what is there later."""
