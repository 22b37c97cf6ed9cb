"""NVIDIA Triton: a bundle as models of a repository (`export`), and what those models run inside the server.

`config` writes `config.pbtxt`, `backend` answers requests in Triton's Python backend.
"""
