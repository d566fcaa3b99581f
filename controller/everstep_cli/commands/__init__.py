"""One function per command: parse, call one method, print."""
