"""``usher serve``: run the admission webhook."""

import asyncio
import os
import re
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

import click
import structlog

from cli import logs
from cli.exits import InputError
from cli.judgement.unanswered import NEEDS, USER
from cli.options import (
    CONTEXT_SETTINGS,
    PORT,
    common_options,
    health_options,
    policy_from,
    policy_options,
)
from cluster.clock import now
from cluster.facts import Connect
from cluster.listening import AddressError
from rules.mutate import MUTATIONS
from rules.mutation import Mode
from webhook.handler import PATH
from webhook.launch import launch
from webhook.settings import Settings
from webhook.tls import CertificateError

_log = structlog.get_logger()

_TLS_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")
_IN_POD: Final = "KUBERNETES_SERVICE_HOST"
"""An environment variable that kubelets set in every container."""
_FILE: Final = click.Path(dir_okay=False, path_type=Path)


_UNITS: Final = {"": 1, "Ki": 1024, "Mi": 1024**2}
"""Suffixes of sizes, as in Kubernetes' quantities."""


def _size(_: click.Context, __: click.Parameter, value: str) -> int:
    found = re.fullmatch(r"(0*[1-9][0-9]{0,8})(Ki|Mi|)", value, re.ASCII)
    if found is None:
        raise click.BadParameter(f"'{value}' must be a size such as 7Mi, 512Ki or 1048576")
    return int(found[1]) * _UNITS[found[2]]


_EPILOG: Final = """\b
Examples:
  usher serve --self-signed --offline
  usher serve --tls-cert /certs/tls.crt --tls-key /certs/tls.key --log-format json
"""


@click.command(
    context_settings=CONTEXT_SETTINGS,
    epilog=_EPILOG,
)
@click.option(
    "--bind",
    multiple=True,
    default=Settings.bind,
    metavar="ADDRESS",
    help="Address to serve on; may be repeated.",
)
@click.option(
    "--port", type=PORT, default=Settings.port, help="Port to serve on; 0 takes a free one."
)
@click.option(
    "--tls-cert",
    type=_FILE,
    help="PEM file of the serving certificate and its chain; read again when it changes.",
)
@click.option(
    "--tls-key", type=_FILE, help="PEM file of the certificate's key; read again when it changes."
)
@click.option(
    "--self-signed",
    is_flag=True,
    help="Make a throwaway certificate for localhost, to try things out.",
)
@click.option(
    "--client-ca",
    type=_FILE,
    help="PEM file of CAs: clients must show a certificate that one of them has signed.",
)
@click.option(
    "--tls-min-version",
    type=click.Choice(list(_TLS_VERSIONS)),
    default="1.2",
    help="Lowest TLS version to accept.",
)
@health_options(Settings.health_bind, Settings.health_port)
@click.option(
    "--timeout",
    type=click.FloatRange(0, 30, min_open=True),
    default=Settings.timeout,
    help="Seconds that a request's body may take at most, also where the caller sets no deadline.",
)
@click.option(
    "--max-body",
    callback=_size,
    default="7Mi",
    metavar="SIZE",
    help="Largest request body in bytes (suffixes Ki, Mi).",
)
@click.option(
    "--concurrency",
    type=click.IntRange(min=1),
    default=Settings.concurrency,
    help="Requests that may wait for their bodies at once; beyond it, who has waited longest gets "
    "HTTP 500. As many may wait for the cluster.",
)
@click.option(
    "--drain-seconds",
    type=click.FloatRange(0, 600),
    default=Settings.drain,
    help="Seconds to serve on after SIGTERM, while endpoints are being removed.",
)
@click.option(
    "--mode",
    type=click.Choice([mode.value for mode in Mode]),
    default=Mode.AUTO.value,
    help="Where the cluster has the API from, and so where pods list responders: in their spec "
    "(native) or in an annotation (crd). Auto asks the cluster. The verdicts are the same.",
)
@click.option(
    "--mutations",
    multiple=True,
    type=click.Choice(list(MUTATIONS)),
    default=tuple(MUTATIONS),
    metavar="MUTATION",
    help="What /mutate may do. May be repeated.",
)
@click.option(
    "--kubeconfig",
    type=_FILE,
    help="The cluster to ask what guards need to know, and for the time.  [default: the one that "
    "the program runs in]",
)
@click.option(
    "--offline",
    is_flag=True,
    help="Do without a cluster: guards that need one are off, which the log says once, and the "
    "time is the machine's.",
)
@policy_options
@common_options
def command(  # noqa: PLR0913 - one for each option
    *,
    self_signed: bool,
    mode: str,
    mutations: tuple[str, ...],
    kubeconfig: Path | None,
    offline: bool,
    enforce: tuple[str, ...],
    audit_only: bool,
    response_budget: int,
    controllers: tuple[str, ...],
    break_glass: tuple[str, ...],
    log_format: str,
    log_level: str,
    **flags: Any,
) -> None:
    """Run the admission webhook: HTTPS, paths /validate and /mutate.

    /livez, /readyz and /metrics are served over plain HTTP on a port of their own. SIGTERM and
    SIGINT let it go down without losing calls.
    """
    policy = policy_from(
        enforce,
        audit_only=audit_only,
        response_budget=response_budget,
        controllers=controllers,
        break_glass=break_glass,
    )
    logs.configure(log_format, log_level)
    connect = _connect(kubeconfig, mode, offline=offline)
    with ExitStack() as stack:
        if self_signed:
            if flags["tls_cert"] or flags["tls_key"]:
                raise InputError(
                    "--self-signed makes its own pair; leave out --tls-cert, --tls-key"
                )
            folder = stack.enter_context(_throwaway())
            flags.update(tls_cert=folder / "tls.crt", tls_key=folder / "tls.key")
        settings = _settings(mode=Mode(mode), mutations=frozenset(mutations), **flags)

        def bound(port: int) -> None:
            if self_signed:
                _show_try(folder / "ca.crt", port)

        try:
            launch(settings, policy, connect, bound)
        except CertificateError as error:
            raise InputError(f"{error}. Give a PEM pair, or try --self-signed.") from None
        except AddressError as error:
            raise InputError(_way_out(error, settings)) from None


def _connect(kubeconfig: Path | None, mode: str, *, offline: bool) -> Connect:
    if offline:
        left_out = [name for name, needs in NEEDS.items() if needs != (USER,)]
        left_out += [name for name, mutation in MUTATIONS.items() if mutation.asks]
        _log.info("cluster", mode=mode, offline=True, off=left_out)
        return nullcontext
    if kubeconfig is None and _IN_POD not in os.environ:
        raise InputError(
            "there is no cluster around, and without one no guard knows who may do what. Name a "
            "cluster with --kubeconfig, or do without one by --offline."
        )
    _log.info("cluster", mode=mode, offline=False, off=[])
    # The client takes half a second and 38 MB, for nothing where there is no cluster.
    from cluster.configuration import ConfigurationError  # noqa: PLC0415
    from cluster.questions import connected  # noqa: PLC0415

    connect = partial(connected, kubeconfig)

    async def try_out() -> None:
        async with connect():
            pass

    try:
        asyncio.run(try_out())  # only reads the configuration
    except ConfigurationError as error:
        raise InputError(
            f"{error}. Name a cluster with --kubeconfig, or do without one by --offline."
        ) from None
    return connect


def _settings(
    *,
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_min_version: str,
    drain_seconds: float,
    **same: Any,
) -> Settings:
    if tls_cert is None or tls_key is None:
        raise InputError("--tls-cert and --tls-key are needed; to try things out: --self-signed")
    return Settings(
        certificate=tls_cert,
        key=tls_key,
        tls_minimum=_TLS_VERSIONS[tls_min_version],
        drain=drain_seconds,
        **same,
    )


@contextmanager
def _throwaway() -> Iterator[Path]:
    """A serving certificate for this machine, in a directory that only this user can read."""
    instant = now()
    from certs.issue import issue_authority, issue_serving  # noqa: PLC0415 - to try out only

    authority = issue_authority(instant)
    serving = issue_serving(authority, _LOCAL_NAMES, instant)
    with tempfile.TemporaryDirectory(prefix="usher-") as name:
        folder = Path(name)
        contents = {
            "ca.crt": authority.pair.certificate,
            "tls.crt": serving.certificate,
            "tls.key": serving.key,
        }
        for file, content in contents.items():
            (folder / file).write_bytes(content)
        yield folder


_REVIEW: Final = (
    '{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1",'
    '"operation":"CREATE","kind":{"group":"lifecycle.k8s.io","version":"v1alpha1",'
    '"kind":"EvictionRequest"},"name":"drain-web-0","object":{"metadata":{"name":"drain-web-0"}}}}'
)


def _show_try(ca: Path, port: int) -> None:
    click.echo(
        f"CA of the throwaway certificate: {ca}\n"
        f"Try it:\n  curl --cacert {ca} -H 'Content-Type: application/json' -d '{_REVIEW}' "
        f"https://localhost:{port}{PATH}"
    )


def _way_out(error: AddressError, settings: Settings) -> str:
    flag = "--health-port" if error.port == settings.health_port else "--port"
    if error.in_use:
        return f"{error.strerror}. Another program listens there; choose another {flag}."
    return f"{error.strerror}. Choose an address of this machine and a {flag} that you may use."
