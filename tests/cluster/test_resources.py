"""Paths of objects, whatever they are called."""

import pytest
from yarl import URL

from cluster.key import Key
from cluster.resources import EVICTIONS, NAMESPACES, PODS


def test_paths() -> None:
    assert PODS.path() == "/api/v1/pods"
    assert PODS.path_of(Key("default", "web-0"), "eviction") == (
        "/api/v1/namespaces/default/pods/web-0/eviction"
    )
    assert EVICTIONS.path("default") == (
        "/apis/lifecycle.k8s.io/v1alpha1/namespaces/default/evictions"
    )
    assert NAMESPACES.path_of(Key("", "default")) == "/api/v1/namespaces/default"


@pytest.mark.parametrize("name", ["..", ".", "../../../secrets", "a/b", "a?b=c", "a#b", "a%2Fb"])
def test_no_name_leads_elsewhere(name: str) -> None:
    url = URL("https://example.com" + PODS.path("default", name), encoded=True)
    assert url.raw_path.rpartition("/")[0] == "/api/v1/namespaces/default/pods"
    assert (url.raw_query_string, url.raw_fragment) == ("", "")
