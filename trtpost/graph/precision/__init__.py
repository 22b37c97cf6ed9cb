"""The network in fewer bits, and on a CPU what a GPU computes of it."""
