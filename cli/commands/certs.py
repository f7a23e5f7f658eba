"""``usher certs``: CA and serving certificate, in a Secret or in a directory."""

import asyncio
import errno
import json
import re
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import click
import structlog

from certs.agent import Agent, Settings, words
from certs.handshake import Address, look
from certs.holdings import Holdings, bundle, bundle_certificates, decode
from certs.injection import Bundles, Target
from certs.inspection import Report
from certs.issue import check_name
from certs.renewal import DEFAULT_LIVES, Lives, Step
from certs.store import DirectoryStore, SecretStore, Store
from cli import logs
from cli.exits import VIOLATIONS, ClusterError, InputError
from cli.options import CONTEXT_SETTINGS, ENVIRONMENT_PREFIX, common_options, health_options
from cluster import clock
from cluster.client import Cluster
from cluster.configuration import ConfigurationError
from cluster.failures import ClusterFailure, Conflict
from cluster.health import serving
from cluster.key import Key
from cluster.resources import MUTATING_CONFIGURATIONS, VALIDATING_CONFIGURATIONS

_log = structlog.get_logger()

CommandT = TypeVar("CommandT", bound=Callable[..., Any])

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_EVERY_ADDRESS: Final = ("0.0.0.0", "::")  # noqa: S104 - the kubelet calls from outside
_USER_AGENT: Final = "usher-certs"


class _Parsed(click.ParamType[Any]):
    """A value that ``parse`` reads from text, or refuses with ValueError."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Parse text; defaults are parsed already."""
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(f"'{value}' {error}", param, ctx)


def _span(text: str) -> timedelta:
    found = re.fullmatch(r"([1-9][0-9]{0,6}|0)([smhd])", text, re.ASCII)
    if found is None:
        raise ValueError("must be a span such as 90d, 12h, 30m or 45s")
    return timedelta(seconds=int(found[1]) * _UNITS[found[2]])


def _name(text: str) -> str:
    check_name(text)
    return text


_NAME: Final = _Parsed("name", _name)
_KEY: Final = _Parsed("namespace/name", Key.parse)
_SPAN: Final = _Parsed("span", _span)
_ADDRESS: Final = _Parsed("address", Address.parse)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the pair is, and who must trust it."""

    secret: Key | None
    directory: Path | None
    kubeconfig: Path | None
    targets: tuple[Target, ...] = ()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["_Opened"]:
        """Connect to the cluster, if there is anything in it."""
        if self.secret is None and not self.targets:
            yield _Opened(_directory(self.directory), Bundles(None, ()), clock.now)
            return
        async with Cluster(self.kubeconfig, _USER_AGENT) as cluster:
            secret = SecretStore(cluster, self.secret) if self.secret else None
            # API servers are the ones that verify: certificates go by their clocks.
            yield _Opened(
                secret or _directory(self.directory),
                Bundles(cluster, self.targets),
                lambda: clock.now() - cluster.clock_ahead,
            )


@dataclass(frozen=True, slots=True)
class _Opened:
    store: Store
    bundles: Bundles
    wall: Callable[[], datetime]


def _directory(path: Path | None) -> DirectoryStore:
    if path is None:
        raise InputError("--secret NAMESPACE/NAME or --dir DIR is needed")
    return DirectoryStore(path)


# --- options ------------------------------------------------------------------------------------


def _place_options(command: CommandT) -> CommandT:
    for option in (
        click.option(
            "--mutating",
            multiple=True,
            metavar="NAME",
            help="A MutatingWebhookConfiguration whose caBundles are meant. May be repeated.",
        ),
        click.option(
            "--validating",
            multiple=True,
            metavar="NAME",
            help="A ValidatingWebhookConfiguration whose caBundles are meant. May be repeated.",
        ),
        click.option(
            "--kubeconfig",
            type=click.Path(dir_okay=False, path_type=Path),
            help="How to reach the API server, and as whom.  [default: the pod's service account]",
        ),
        click.option(
            "--dir",
            "directory",
            envvar=f"{ENVIRONMENT_PREFIX}_DIR",
            type=click.Path(file_okay=False, path_type=Path),
            help="Directory with tls.crt, tls.key, ca.crt and ca.key.",
        ),
        click.option(
            "--secret",
            type=_KEY,
            metavar="NAMESPACE/NAME",
            help="Secret with tls.crt, tls.key, ca.crt and ca.key.",
        ),
    ):
        command = option(command)
    return command


def _name_options(command: CommandT) -> CommandT:
    for option in (
        click.option(
            "--cluster-domain", default="cluster.local", help="The domain of Services' names."
        ),
        click.option(
            "--service",
            type=_KEY,
            metavar="NAMESPACE/NAME",
            help="The Service that the certificate is for, by all of its names.",
        ),
        click.option(
            "--name",
            "names",
            envvar=f"{ENVIRONMENT_PREFIX}_NAME",
            type=_NAME,
            multiple=True,
            metavar="NAME",
            help="A DNS name or IP address that the certificate is for. May be repeated.",
        ),
    ):
        command = option(command)
    return command


def _life_options(command: CommandT) -> CommandT:
    for option in (
        click.option(
            "--wait",
            type=_SPAN,
            default=_text(DEFAULT_LIVES.wait),
            help="From a CA's arrival in every caBundle to its first certificate: for API servers "
            "to hear of it.",
        ),
        click.option(
            "--leaf-life",
            type=_SPAN,
            default=_text(DEFAULT_LIVES.leaf),
            help="For how long a serving certificate is valid; renewed at two thirds.",
        ),
        click.option(
            "--ca-life",
            type=_SPAN,
            default=_text(DEFAULT_LIVES.authority),
            help="For how long a CA is valid; renewed at two thirds.",
        ),
    ):
        command = option(command)
    return command


def _text(span: timedelta) -> str:
    seconds = round(span.total_seconds())
    unit = next(unit for unit in "dhms" if seconds % _UNITS[unit] == 0)
    return f"{seconds // _UNITS[unit]}{unit}"


def _place(flags: dict[str, Any]) -> _Place:
    """What the options of :func:`_place_options` ask for."""
    targets = [
        Target(resource, name)
        for resource, option in (
            (VALIDATING_CONFIGURATIONS, "validating"),
            (MUTATING_CONFIGURATIONS, "mutating"),
        )
        for name in flags[option]
    ]
    return _Place(flags["secret"], flags["directory"], flags["kubeconfig"], tuple(targets))


def _names(flags: dict[str, Any], *, needed: bool = True) -> tuple[str, ...]:
    """What the options of :func:`_name_options` ask for."""
    found, service = list(flags["names"]), flags["service"]
    if service is not None:
        local = f"{service.name}.{service.namespace}"
        found += [service.name, local, f"{local}.svc", f"{local}.svc.{flags['cluster_domain']}"]
    if needed and not found:
        raise InputError(
            "--service NAMESPACE/NAME or --name is needed: what the certificate is for"
        )
    return tuple(dict.fromkeys(found))


def _lives(flags: dict[str, Any]) -> Lives:
    """What the options of :func:`_life_options` ask for."""
    lives = Lives(flags["ca_life"], flags["leaf_life"], flags["wait"])
    # The last third of a life is for the rotation and for repairs.
    if not 3 * lives.wait < lives.leaf <= lives.authority:
        raise InputError("must be three times --wait < --leaf-life <= --ca-life")
    return lives


# --- commands -----------------------------------------------------------------------------------


@click.group(
    name="certs",
    context_settings=CONTEXT_SETTINGS,
    epilog="\b\nExamples:\n"
    "  usher certs issue --dir certs --name localhost\n"
    "  usher certs inspect --secret usher-system/usher-tls --validating usher\n"
    "  usher certs rotate --secret usher-system/usher-tls --validating usher",
)
def command() -> None:
    """Issue, inspect, rotate and look after the webhook's certificates.

    The pair and its CA live in a Secret or in a directory. See docs/certificates.md.
    """


@command.command(
    short_help="Issue a CA and a serving certificate.",
    context_settings=CONTEXT_SETTINGS,
    epilog="\b\nExamples:\n"
    "  usher certs issue --dir certs --name localhost --name 127.0.0.1\n"
    "  usher certs issue --secret usher-system/usher-tls --service usher-system/usher \\\n"
    "    --validating usher --mutating usher",
)
@_place_options
@_name_options
@_life_options
@common_options
def issue(*, log_format: str, log_level: str, **flags: Any) -> None:
    """Issue a CA and a serving certificate, into a Secret or a directory.

    The CA goes into the caBundles of the configurations that are named. What is good already stays:
    the command may be repeated.
    """
    place = _place(flags)
    settings = Settings(_names(flags), _lives(flags))
    logs.configure(log_format, log_level)

    async def work() -> None:
        async with place.opened() as at:
            await Agent(at.store, at.bundles, settings, at.wall).settle()
            click.echo(f"{at.store}: holds a CA and a certificate for {', '.join(settings.names)}")

    _run(work())


@command.command(
    short_help="Keep certificates and caBundles as they should be.",
    context_settings=CONTEXT_SETTINGS,
    epilog="\b\nExamples:\n"
    "  usher certs agent --secret usher-system/usher-tls --service usher-system/usher \\\n"
    "    --validating usher --mutating usher --dir /certs --served localhost:9443\n"
    "  usher serve --tls-cert /certs/tls.crt --tls-key /certs/tls.key\n"
    "  usher certs agent --dir certs --name localhost --validating usher \\\n"
    "    --kubeconfig ~/.kube/config",
)
@_place_options
@_name_options
@_life_options
@click.option(
    "--served",
    type=_ADDRESS,
    metavar="HOST:PORT",
    help="Where the pair is served: a handshake tells whether a new one has arrived, and no CA is "
    "dropped before.",
)
@health_options(_EVERY_ADDRESS, None)
@common_options
def agent(
    *,
    served: Address | None,
    health_bind: tuple[str, ...],
    health_port: int | None,
    log_format: str,
    log_level: str,
    **flags: Any,
) -> None:
    """Keep certificates and caBundles as they should be, until SIGTERM.

    Run one beside every webhook: they agree among themselves. With --secret, the pair is kept there
    and written to --dir for 'usher serve'; without, --dir is all there is. With --health-port it
    serves /livez, /readyz (the pair is there) and /metrics over plain HTTP.
    """
    place = _place(flags)
    settings = Settings(_names(flags), _lives(flags), served)
    logs.configure(log_format, log_level)

    async def work() -> None:
        async with place.opened() as at:
            output = DirectoryStore(place.directory) if place.secret and place.directory else None
            running = Agent(at.store, at.bundles, settings, at.wall, output=output)
            await _until_signal(_run_visibly(running, health_bind, health_port))

    _run(work())


@command.command(
    short_help="Replace CA and serving certificate now.",
    context_settings=CONTEXT_SETTINGS,
    epilog="\b\nExamples:\n"
    "  usher certs rotate --secret usher-system/usher-tls --validating usher --mutating usher\n"
    "  usher certs rotate --leaf --dir certs",
)
@_place_options
@_life_options
@click.option("--leaf", is_flag=True, help="Only the serving certificate, of the same CA.")
@common_options
def rotate(*, leaf: bool, log_format: str, log_level: str, **flags: Any) -> None:
    """Replace CA and serving certificate now, in the order that fails no call.

    Name the configurations that call the webhook: the new CA must be in their caBundles before
    anything is signed by it. In a directory without any, the new CA stands beside the old one in
    ca.crt at first: hand that out, then rotate again with --leaf.
    """
    place = _place(flags)
    lives = _lives(flags)
    logs.configure(log_format, log_level)

    async def work() -> None:
        async with place.opened() as at:
            serving = decode((await at.store.read()).files).serving
            if serving is None:
                raise InputError(f"{at.store}: holds no usable pair; try 'usher certs issue'")
            rotating = Agent(at.store, at.bundles, Settings(serving.names, lives), at.wall)
            await rotating.force(Step.ISSUE_LEAF if leaf else Step.ADD_AUTHORITY)
            if not leaf and place.secret is None and not place.targets:
                click.echo(
                    f"{at.store}: ca.crt holds the new CA beside the old one. Give it to every "
                    "client, then run 'usher certs rotate --leaf' here."
                )
                return
            await rotating.settle()
            click.echo(f"{at.store}: rotated")

    _run(work())


@command.command(
    short_help="Show certificates and what is wrong with them.",
    context_settings=CONTEXT_SETTINGS,
    epilog="\b\nExamples:\n"
    "  usher certs inspect --dir certs\n"
    "  usher certs inspect --secret usher-system/usher-tls --validating usher -o json\n"
    "  usher certs inspect --address localhost:9443 --ca certs/ca.crt\n"
    "Exit code 1: something is wrong, or less than a quarter of a life is left.",
)
@_place_options
@_name_options
@click.option(
    "--address",
    type=_ADDRESS,
    metavar="HOST:PORT",
    help="A server to look at, beside the rest or alone.",
)
@click.option(
    "--ca",
    type=click.Path(dir_okay=False, path_type=Path),
    help="PEM file of CAs that the server must satisfy.  [default: those of the store]",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json"]),
    default="text",
    help="JSON: one object with now, certificates, caBundles and problems.",
)
@common_options
def inspect(
    *,
    address: Address | None,
    ca: Path | None,
    output: str,
    log_format: str,
    log_level: str,
    **flags: Any,
) -> int:
    """Show certificates, what is left of their lives, and whether caBundles agree.

    Looks at a Secret, a directory, a served address, or all of a kind at once.
    """
    place = _place(flags)
    wanted = _names(flags, needed=False)
    if not (place.secret or place.directory or place.targets or address):
        raise InputError("--secret, --dir, --address, --validating or --mutating is needed")
    logs.configure(log_format, log_level)
    report = _run(_inspection(place, wanted, address, ca))
    if output == "json":
        click.echo(json.dumps(report.json(), indent=2))
    else:
        click.echo("\n".join(report.lines()))
    return VIOLATIONS if report.problems else 0


async def _inspection(
    place: _Place, names: tuple[str, ...], address: Address | None, ca: Path | None
) -> Report:
    has_store = place.secret is not None or place.directory is not None
    holdings: Holdings | None = None
    injected = []
    now = clock.now()
    if has_store or place.targets:
        async with place.opened() as at:
            injected = await at.bundles.read()
            holdings = decode((await at.store.read()).files) if has_store else None
            now = at.wall()
    report = Report(now)
    if holdings is not None:
        report.add_holdings(holdings, names)
    report.add_bundles(injected, holdings)
    report.add_missing(place.targets, injected)
    if address is not None:
        trusted = _trusted(ca, holdings)
        try:
            shown = await look(address, trusted, names[0] if names else "")
        except OSError as error:
            reason = str(error) or "no answer"
            raise ClusterError(f"{address}: {reason}. Is 'usher serve' running there?") from None
        report.add_shown(shown, names)
        if holdings is not None:
            report.compare(holdings, shown)
    return report


def _trusted(ca: Path | None, holdings: Holdings | None) -> bytes:
    if ca is None:
        return bundle(holdings.authorities) if holdings else b""
    try:
        content = ca.read_bytes()
        if bundle_certificates(content):
            return content
    except OSError as error:
        raise InputError(f"--ca {ca}: {error.strerror}") from None
    except ValueError:
        pass
    raise InputError(f"--ca {ca}: must be certificates in PEM")


# --- running ------------------------------------------------------------------------------------

ResultT = TypeVar("ResultT")


def _run(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run ``work``; failures become errors with a way out."""
    try:
        return asyncio.run(work)
    except ConfigurationError as error:
        raise InputError(
            f"{str(error).rstrip('.')}. Outside of a cluster give --kubeconfig."
        ) from None
    except Conflict as conflict:
        raise ClusterError(f"{conflict}. If somebody else was at work, try again.") from None
    except (ClusterFailure, OSError) as failure:
        _fail(failure)


def _fail(failure: ClusterFailure | OSError) -> NoReturn:
    if isinstance(failure, OSError) and failure.errno == errno.EADDRINUSE:
        raise InputError(f"{failure.strerror}. Choose another --health-port.") from None
    if isinstance(failure, OSError) and failure.filename is not None:
        raise InputError(f"{failure.filename}: {failure.strerror}") from None
    text = words(failure) or type(failure).__name__
    raise ClusterError(f"{text}. See docs/certificates.md.") from None


async def _run_visibly(agent: Agent, hosts: Sequence[str], port: int | None) -> None:
    """Run ``agent``, and answer the kubelet and Prometheus if ``port`` is given."""
    if port is None:
        await agent.run()
        return
    questions = serving(
        hosts,
        port,
        not_live=agent.not_live,
        not_ready=agent.not_ready,
        registry=agent.metrics.registry,
    )
    async with questions as addresses:
        _log.info("answering", health=addresses)
        await agent.run()


async def _until_signal(work: Coroutine[Any, Any, None]) -> None:
    """Run ``work`` until SIGTERM or SIGINT. Whatever it is doing then may be left half-done."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with suppress(asyncio.CancelledError):
        await task
