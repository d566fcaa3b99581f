"""Copy engine: views of memory, and copies of it at the speed of memcpy and of the devices."""
