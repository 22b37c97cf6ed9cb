"""Many photos to many files: which file each mask goes to, the run, and what became of it."""
