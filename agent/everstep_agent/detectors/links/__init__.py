"""Link detectors: judgements of Ethernet, InfiniBand and RoCE links, and of bonds of them."""
