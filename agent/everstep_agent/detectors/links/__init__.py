"""What is judged of links: Ethernet, InfiniBand, RoCE, and bonds of them."""
