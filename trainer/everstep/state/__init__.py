"""What a training state is: arrays and objects of any library as shards of memory, and back."""
