"""What the chart registers by default, for a webhook that runs beside the API server."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tests.chart.rendering import NAMESPACE, render
from tests.controller.rights import CONTROLLER
from tests.e2e.cluster import Cluster
from tests.e2e.usher import Usher

_KIND: Final = "ValidatingWebhookConfiguration"
_PATH: Final = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@contextmanager
def registered_by_chart(cluster: Cluster, usher: Usher) -> Iterator[None]:
    """The validating configurations, with ``usher`` in the place of the chart's Service."""
    values = {
        "webhook": {"url": f"https://localhost:{usher.port}"},
        "serviceAccount": {"name": CONTROLLER.rpartition(":")[2]},
    }
    assert CONTROLLER.startswith(f"system:serviceaccount:{NAMESPACE}:")
    configurations = render(values).all(_KIND)
    bundle = base64.b64encode(usher.authority.pair.certificate).decode()
    for each in configurations:
        for hook in each["webhooks"]:
            hook["clientConfig"]["caBundle"] = bundle
        answer = cluster.api("POST", _PATH, each)
        assert answer.ok, answer.message
    try:
        yield
    finally:
        for each in configurations:
            cluster.api("DELETE", f"{_PATH}/{each['metadata']['name']}")
