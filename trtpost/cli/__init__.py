"""The command line: `app` reads options, calls one function and prints what comes back."""
