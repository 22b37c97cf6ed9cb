"""`python -m trtpost` is `trtpost`."""

from trtpost.cli.entry import main

main()
