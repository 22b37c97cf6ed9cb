"""ArgMax and Resize inside the engine: segmentation masks at the photo's resolution."""
