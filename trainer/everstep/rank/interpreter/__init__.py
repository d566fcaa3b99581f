"""Start of a rank's interpreter: this folder is first on the PYTHONPATH of each rank."""
