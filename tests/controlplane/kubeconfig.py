"""Kubeconfig files, one for each identity."""

import base64
import json
from pathlib import Path

from tests.controlplane.identities import Identity

_NAME = "usher-tests"


def render_kubeconfig(url: str, ca_file: Path, identity: Identity) -> str:
    """Return a self-contained kubeconfig (JSON, which every YAML reader takes)."""
    authority = base64.b64encode(ca_file.read_bytes()).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": _NAME, "cluster": {"server": url, "certificate-authority-data": authority}}
        ],
        "users": [{"name": identity.user, "user": {"token": identity.token}}],
        "contexts": [{"name": _NAME, "context": {"cluster": _NAME, "user": identity.user}}],
        "current-context": _NAME,
    }
    return json.dumps(document, indent=2) + "\n"
