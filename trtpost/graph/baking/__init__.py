"""One graph from uint8 pixels to class ids."""
