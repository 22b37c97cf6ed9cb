"""Masks: coloured, encoded, written over nothing but masks, and known again by what they say of themselves."""
