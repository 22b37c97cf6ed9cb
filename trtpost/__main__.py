"""`python -m trtpost` is `trtpost`."""

from trtpost.entry import main

main()
