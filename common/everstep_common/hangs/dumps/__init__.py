"""Dumps of torch's Flight Recorder: folders of files, recorders, and what they tell of a rank."""
