"""What the end of a network means: where its logits are, their layout and classes."""
