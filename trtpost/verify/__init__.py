"""Proof that a bundle says what the pipeline says that it replaces, and where it begins to differ if it does not.

`run.py` is the whole: `reference.py` is the replaced pipeline written out plainly, with `network.py` running the model
in its own framework and `frameworks.py` resizing as each framework does; `compare.py` holds the figures, `truths.py`
reads ground truth. `blame.py` searches where a difference begins, `stages.py` names what a stage does otherwise.
`report.py` and `html_report.py` are what is told, `orders.py` is the choice between the two orders of resize and
ArgMax, by the IoU and by what `boundaries.py` says.
"""
