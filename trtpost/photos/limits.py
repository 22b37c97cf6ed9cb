"""How large a photo may be, and all that are in memory: nothing else is here, so that the command line may show it."""

MAX_BYTES = 2 << 30
"""Largest file that is read: 16-bit RGBA of `MAX_PIXELS` takes 1.4 GB as it is."""

MAX_PIXELS = 178_956_970
"""Most pixels of one photo, as in Pillow's guard against decompression bombs; by default, of all that are in memory."""

SERVED_PIXELS = 1 << 27
"""Most pixels in memory where a server decodes what anybody sends: 16384x8192, so that 100 megapixels fit as well."""
