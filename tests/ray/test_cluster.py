"""Clusters that are not there."""

from __future__ import annotations

import pytest
from conftest import package

from trtpost.errors import TrtpostError
from trtpost.ray.cluster import cluster

# Ray's own, which sets its deprecated settings itself
pytestmark = pytest.mark.filterwarnings("ignore:::ray", "ignore::ResourceWarning")


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1:1", "there is no Ray cluster at 127.0.0.1:1: Connection refused"),
        ("ray://127.0.0.1:1", "there is no Ray cluster at ray://127.0.0.1:1: Connection refused"),
        ("nonsense", "given as HOST:PORT, auto"),
        ("host:port", "given as HOST:PORT, auto"),
        ("127.0.0.1:70000", "there is no Ray cluster"),
    ],
)
def test_no_cluster_is_said_at_once(monkeypatch, address, why):
    monkeypatch.setattr(package("ray"), "is_initialized", lambda: False)
    with pytest.raises(TrtpostError, match=why), cluster(address):
        pass
