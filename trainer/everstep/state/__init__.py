"""Training state: arrays and objects of any library as shards of memory, and back."""
