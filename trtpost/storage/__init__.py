"""Files and folders: read if they are regular, written whole or not at all."""
