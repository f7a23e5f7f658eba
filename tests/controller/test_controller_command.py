"""``usher controller`` before it reaches any API server."""

from pathlib import Path

import pytest

from tests.cli.conftest import Usher


def test_spans_of_the_lease_must_fit(usher: Usher) -> None:
    run = usher("controller", "--renew-deadline", "20")
    assert run.exit_code == 2
    assert "--retry-period < --renew-deadline < --lease-duration" in run.stderr


def test_outside_of_a_cluster_it_wants_a_kubeconfig(
    usher: Usher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    run = usher("controller")
    assert run.exit_code == 2
    assert "Outside of a cluster give --kubeconfig." in run.stderr


def test_a_broken_kubeconfig_is_bad_input(usher: Usher, tmp_path: Path) -> None:
    broken = tmp_path / "kubeconfig"
    for text in ("", "[]", "apiVersion: v1\nkind: Config\n", "{", "current-context: x\n"):
        broken.write_text(text)
        run = usher("controller", "--kubeconfig", broken)
        assert run.exit_code == 2, text
    run = usher("controller", "--kubeconfig", tmp_path / "missing")
    assert run.exit_code == 2


def test_a_dry_run_of_node_health_needs_node_health(usher: Usher) -> None:
    run = usher("controller", "--node-health-dry-run")
    assert run.exit_code == 2
    assert "--node-health-dry-run needs --node-health" in run.stderr


@pytest.mark.parametrize("requester", ["nodes", "nodes.k8s.io/health", "a/b/c", ""])
def test_a_requester_must_be_one(usher: Usher, requester: str) -> None:
    run = usher("controller", "--node-health", "--node-health-requester", requester)
    assert run.exit_code == 2
    assert "--node-health-requester: " in run.stderr
