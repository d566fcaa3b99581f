"""Jobs: admission, identity, progress and end."""
