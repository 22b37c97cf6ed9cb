"""`trtpost::ArgMaxResize` three times: `reference` in numpy defines it, `cpu` and `cuda` are fast."""
