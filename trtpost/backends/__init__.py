"""The runtimes: each takes the baked graph its own way."""
