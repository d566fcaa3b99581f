"""What the controller has learned, written down before it is acted on."""
