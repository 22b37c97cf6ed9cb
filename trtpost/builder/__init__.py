"""From a model file to an engine bundle: `build` does the steps, `decide` settles what they are given."""
