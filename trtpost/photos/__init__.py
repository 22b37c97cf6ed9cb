"""Photos: found, decoded within limits, and made small for a network."""
