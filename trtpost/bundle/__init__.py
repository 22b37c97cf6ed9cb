"""The artefact: an engine bundle. `passport` is what is known of it, `folder` reads and writes it."""
