"""HTTP between our example of it and programs over the kernel's TCP, curl, Python's server and nginx;
and between two of ours, where tshark sees the TCP RDMA option (draft-csapuntz-tcprdma-00)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from .built import built_directory
from .cases import CAPTURE, JUDGE_SECONDS, sha256
from .networks import KERNEL_ADDRESS, OUR_ADDRESS, PREFIX_LENGTH, AfPacket
from .processes import NotHere, Process, RigError, command

PROGRAM: Final = built_directory() / "examples" / "http"
SECONDS: Final = 120
KIND: Final = 25
OFFERED: Final = 2
WITH_TOTAL: Final = 20
"""Octets of the option that offers it, and of one that describes a part of a transfer of known length."""
HEADER_OCTETS: Final = 20
SMALL_FILES: Final = 10
SNAP_OCTETS: Final = 128
"""Of each frame in a capture: all headers."""
PAIR_OCTETS: Final = 5_000_001
"""Of the file between two of ours."""
NGINX: Final = """daemon off; master_process off; user root; pid {directory}/nginx.pid;
error_log stderr; events {{}}
http {{ access_log off; client_body_temp_path {directory}/nginx; proxy_temp_path {directory}/nginx;
fastcgi_temp_path {directory}/nginx; uwsgi_temp_path {directory}/nginx; scgi_temp_path {directory}/nginx;
server {{ listen {address}:{port}; location / {{ root {root}; }} }} }}
"""


@dataclass
class Seen:
    """What tshark sees of one connection's end."""

    syn_offers: int = 0
    """SYNs with the option in the form that offers it."""
    elsewhere: int = 0
    """Other segments with the option."""
    transfers: Counter[int] = field(default_factory=Counter)
    """Segments whose option describes a transfer, by the length of the option."""
    unaligned: int = 0
    octets: int = 0
    """Of transfers, each segment counted."""
    outside: int = 0
    """Options that describe more than their segment has."""
    bare: int = 0
    """Segments with payload and no transfer."""
    segments: int = 0
    payload: int = 0
    """Octets of all segments."""


def play_all(network: AfPacket, size_mib: int) -> Iterator[tuple[str, Callable[[], str]]]:
    """The cases, each a name and what plays it."""
    yield "curl gets and posts", lambda: _curl(network, size_mib)
    yield "curl asks for parts, what is new, and sends chunks", lambda: _asked(network)
    yield "curl is refused", lambda: _refused(network)
    yield "we get from Python's http.server", lambda: _get(network, size_mib, _python)
    yield "we get from nginx", lambda: _get(network, size_mib, _nginx)
    yield "two of ours, as tshark sees them", lambda: _pair(network)


def _root(network: AfPacket, octets: int) -> tuple[Path, Path]:
    """A directory to serve, with one large file and small ones, and one to receive into."""
    if not PROGRAM.exists():
        raise NotHere(f"{PROGRAM} is not there: cargo build --release --examples --package warpline")
    root, received = network.directory / "http-root", network.directory / "http-received"
    for directory in (root, received):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
    with (root / "large").open("wb") as file:
        for _ in range(octets >> 20):
            file.write(os.urandom(1 << 20))
        file.write(os.urandom(octets % (1 << 20)))
    for number in range(SMALL_FILES):
        (root / f"small-{number}").write_bytes(os.urandom(number * 1000))
    return root, received


def _device(network: AfPacket, interface: str, address: str) -> str:
    return f"af_packet:{interface},mtu={network.mtu},address={address}/{PREFIX_LENGTH}"


def _our_server(network: AfPacket, root: Path) -> None:
    words = [str(PROGRAM), "server", _device(network, "wl1", OUR_ADDRESS), str(root)]
    network.start("http-server", network.ours, words, SECONDS).await_text("ready\n")


@contextmanager
def _captured(network: AfPacket) -> Iterator[list[Path]]:
    """Captures of the headers at each end of the pair, of what arrives there: what net_af_packet sends passes
    by the taps of its own interface."""
    captures, dumpcaps = [], []
    for number, (namespace, interface) in enumerate(((network.kernel, "wl0"), (network.ours, "wl1"))):
        captures.append(network.directory / f"{number}-{CAPTURE}")
        mac = (
            command("ip", "-n", namespace, "-o", "link", "show", interface).split("link/ether ")[1].split()[0]
        )
        words = [
            "dumpcap",
            "-q",
            "-i",
            interface,
            "-B",
            "64",
            "-s",
            str(SNAP_OCTETS),
            "-w",
            str(captures[-1]),
        ]
        dumpcaps.append(network.start("dumpcap", namespace, [*words, "-f", f"ether dst {mac}"], SECONDS))
        dumpcaps[-1].await_text("File:")
    yield captures
    time.sleep(1)  # dumpcap writes out what it holds twice a second
    for dumpcap in dumpcaps:
        dumpcap.stop()


def _curl_once(network: AfPacket, *words: str) -> str:
    return command(
        *("ip", "netns", "exec", network.kernel, "curl", "--silent", "--show-error", "--max-time"),
        *(str(SECONDS), *words),
        seconds=SECONDS + 5,
    )


def _same(one: Path, other: Path) -> None:
    if sha256(one) != sha256(other):
        raise RigError(f"{other.name} is not what was sent")


def _rate(octets: int, seconds: float) -> str:
    return f"{octets * 8 / seconds / 1e9:.1f} Gb/s"


def _curl(network: AfPacket, size_mib: int) -> str:
    """curl gets a large file and posts it back, once each way; nothing was offered, so there is no option."""
    if not shutil.which("curl"):
        raise NotHere("curl is not installed")
    root, received = _root(network, size_mib << 20)
    url = f"http://{OUR_ADDRESS}"
    try:
        with _captured(network) as captures:
            _our_server(network, root)
            started = time.monotonic()
            _curl_once(network, "--fail", "--output", str(received / "large"), f"{url}/large")
            got = time.monotonic()
            upload = ["--fail", "--request", "POST", "--upload-file", str(received / "large")]
            _curl_once(network, *upload, f"{url}/posted")
            posted = time.monotonic()
    finally:
        network.stop_all()
    _same(root / "large", received / "large")
    _same(root / "large", root / "posted")
    seen = _look(captures)
    if any(end.syn_offers or end.elsewhere or end.transfers for end in seen.values()):
        raise RigError(f"an option that nobody offered: {seen}")
    octets = size_mib << 20
    return (
        f"{size_mib} MiB got at {_rate(octets, got - started)}, posted at {_rate(octets, posted - got)}, "
        "hashes equal, no option"
    )


def _asked(network: AfPacket) -> str:
    """What curl asks for beyond whole files."""
    if not shutil.which("curl"):
        raise NotHere("curl is not installed")
    root, received = _root(network, 300_000)
    large = (root / "large").read_bytes()
    url = f"http://{OUR_ADDRESS}"
    status = ["--write-out", "%{http_code}"]
    got = received / "got"
    cases: dict[str, tuple[list[str], str, bytes | None]] = {
        "a part": (["--range", "1000-200999", f"{url}/large"], "206", large[1000:201_000]),
        "the end": (["--range", "-500", f"{url}/large"], "206", large[-500:]),
        "nothing new": (["--time-cond", str(root / "large"), f"{url}/large"], "304", None),
        "absolute form": (["--request-target", f"{url}/large", f"{url}/none"], "200", large),
    }
    upload = ["--header", "Transfer-Encoding: chunked", "--upload-file", str(root / "large")]
    try:
        _our_server(network, root)
        for name, (words, expected, contents) in cases.items():
            got.unlink(missing_ok=True)
            told = _curl_once(network, *status, "--output", str(got), *words)
            if told != expected:
                raise RigError(f"{name}: status {told} instead of {expected}")
            if contents is not None and got.read_bytes() != contents:
                raise RigError(f"{name}: other bytes than asked for")
        told = _curl_once(network, *status, "--output", "/dev/null", *upload, f"{url}/chunked")
        if told != "201":
            raise RigError(f"chunks: status {told} instead of 201")
        # HTTP/1.0 keeps a connection that it asks to be kept.
        old = ["--http1.0", "--header", "Connection: keep-alive", "--output", "/dev/null", f"{url}/small-1"]
        connections = _curl_once(network, "--write-out", "%{num_connects}", *old, "--next", *old)
    finally:
        network.stop_all()
    _same(root / "large", root / "chunked")
    if not connections.startswith("1"):
        raise RigError(f"connections of HTTP/1.0: {connections}")
    return f"{', '.join(cases)}, chunks up; contents equal"


def _refused(network: AfPacket) -> str:
    """What the server does not do it says by a status that curl understands."""
    if not shutil.which("curl"):
        raise NotHere("curl is not installed")
    root, _ = _root(network, 100)
    url = f"http://{OUR_ADDRESS}"
    cases = {
        "200": ["--head", f"{url}/large"],
        "404": [f"{url}/none"],
        " 404": ["--path-as-is", f"{url}/../http-root/large"],
        "405": ["--request", "DELETE", f"{url}/large"],
        "411": ["--request", "PUT", f"{url}/new"],
        "416": ["--range", "100-", f"{url}/large"],
        "501": ["--header", "Transfer-Encoding: gzip", "--request", "PUT", f"{url}/new"],
        "431": ["--header", f"X: {'x' * 20000}", f"{url}/large"],
        "400": ["--header", "Host:", f"{url}/large"],
    }
    try:
        _our_server(network, root)
        for status, words in cases.items():
            told = _curl_once(network, "--write-out", "%{http_code}", "--output", "/dev/null", *words)
            if told != status.strip():
                raise RigError(f"status {told} instead of {status}: {words[-1]}")
        # Two requests on one connection.
        connections = _curl_once(
            *(network, "--write-out", "%{num_connects}", "--output", "/dev/null"),
            *(f"{url}/large", "--output", "/dev/null", f"{url}/small-3"),
        )
    finally:
        network.stop_all()
    if connections != "10":
        raise RigError(f"connections of two requests: {connections}")
    return f"{', '.join(status for status in cases if status[0] != ' ')}; a connection is kept"


def _python(network: AfPacket, root: Path) -> tuple[Process, int]:
    words = ["python3", "-u", "-m", "http.server", "--bind", KERNEL_ADDRESS, "--directory", str(root), "8000"]
    return network.start("http.server", network.kernel, words, SECONDS), 8000


def _nginx(network: AfPacket, root: Path) -> tuple[Process, int]:
    nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if nginx is None:
        raise NotHere("nginx is not installed (Debian: nginx-light)")
    settings = network.directory / "nginx.conf"
    settings.write_text(
        NGINX.format(directory=network.directory, address=KERNEL_ADDRESS, port=8080, root=root)
    )
    return network.start("nginx", network.kernel, [nginx, "-c", str(settings), "-e", "stderr"], SECONDS), 8080


def _get(network: AfPacket, size_mib: int, start: Callable[[AfPacket, Path], tuple[Process, int]]) -> str:
    """Our client gets files from a server that ignores the option that our SYN offers."""
    root, received = _root(network, size_mib << 20)
    try:
        with _captured(network) as captures:
            server, port = start(network, root)
            _await_port(network, port)
            started = time.monotonic()
            told = _our_client(network, "wl1", (OUR_ADDRESS, network.ours), port, received)
            seconds = time.monotonic() - started
    finally:
        network.stop_all()
    for path in root.iterdir():
        _same(path, received / path.name)
    if told["option"] != "without" or told["placed"] != "0":
        raise RigError(f"{server.name}: {told}")
    seen = _look(captures)
    ours = seen[OUR_ADDRESS]
    if ours.syn_offers != int(told["connections"]) or ours.elsewhere or ours.transfers:
        raise RigError(f"the option stands where it may not: {seen}")
    if (kernel := seen[KERNEL_ADDRESS]).syn_offers or kernel.elsewhere or kernel.transfers:
        raise RigError(f"the kernel sends the option: {kernel}")
    octets = sum(path.stat().st_size for path in root.iterdir())
    return (
        f"{SMALL_FILES + 1} files, {octets} bytes in {seconds:.1f} s, program start included, hashes equal; "
        f"{told['connections']} SYNs offer the option (kind {KIND}, length {OFFERED}), none after them"
    )


def _await_port(network: AfPacket, port: int) -> None:
    """Wait until a server in the kernel's namespace listens."""
    until = time.monotonic() + 60
    while f":{port} " not in command("ip", "netns", "exec", network.kernel, "ss", "-ltn"):
        if time.monotonic() > until:
            raise RigError(f"nobody listens at port {port}: {network.last_words()}")
        time.sleep(0.02)


def _our_client(
    network: AfPacket, interface: str, where: tuple[str, str], port: int, received: Path
) -> dict[str, str]:
    """Our client gets all files of a server at the other end; what it says of them."""
    address, namespace = where
    server = KERNEL_ADDRESS if address == OUR_ADDRESS else OUR_ADDRESS
    targets = ["/large", *(f"/small-{number}" for number in range(SMALL_FILES))]
    words = [str(PROGRAM), "client", _device(network, interface, address), f"{server}:{port}"]
    told = command(
        *("ip", "netns", "exec", namespace, "timeout", str(SECONDS), *words),
        *("get", str(received), *targets),
        seconds=SECONDS + 5,
    )
    found = re.search(
        r"(?P<responses>\d+) responses, (?P<connections>\d+) connections, the last one (?P<option>\w+) the "
        r"option: (?P<bodies>\d+) bytes of bodies, (?P<placed>\d+) placed, (?P<copied>\d+) copied",
        told,
    )
    if found is None:
        raise RigError(f"our client says: {told}")
    return found.groupdict()


def _pair(network: AfPacket) -> str:
    """Our client and our server: the option where it belongs."""
    root, received = _root(network, PAIR_OCTETS)
    octets = sum(path.stat().st_size for path in root.iterdir())
    kernel_address = f"{KERNEL_ADDRESS}/{PREFIX_LENGTH}"
    # The kernel must not answer in our client's place.
    command(*f"ip -n {network.kernel} addr del {kernel_address} dev wl0".split())
    try:
        with _captured(network) as captures:
            _our_server(network, root)
            told = _our_client(network, "wl0", (KERNEL_ADDRESS, network.kernel), 80, received)
    finally:
        network.stop_all()
        command(*f"ip -n {network.kernel} addr add {kernel_address} dev wl0".split())
    for path in root.iterdir():
        _same(path, received / path.name)
    if told["option"] != "with" or int(told["placed"]) != octets:
        raise RigError(f"not all of {octets} bytes placed: {told}")
    seen = _look(captures)
    client, server = seen[KERNEL_ADDRESS], seen[OUR_ADDRESS]
    if (client.syn_offers, server.syn_offers) != (1, 1):
        raise RigError(f"the option is not in both SYNs: {seen}")
    if client.transfers or set(server.transfers) != {WITH_TOTAL}:
        raise RigError(f"transfers of other lengths, or of the client: {seen}")
    if server.unaligned or client.unaligned or server.outside:
        raise RigError(f"options off a boundary of four octets, or beyond their segment: {server}")
    # What no option describes is heads, which our client copies.
    if server.octets != octets or server.payload - server.octets != int(told["copied"]):
        raise RigError(f"{octets} octets of transfers, and heads of {told['copied']}: {server}")
    return (
        f"{octets} bytes placed, {told['copied']} copied; {server.transfers[WITH_TOTAL]} segments with "
        f"options of {WITH_TOTAL} octets describe {server.octets} octets, {server.bare} segments have none"
    )


def _look(captures: list[Path]) -> dict[str, Seen]:
    """What tshark shows of the option, by the sender's address. Segments sent again count once."""
    seen = {KERNEL_ADDRESS: Seen(), OUR_ADDRESS: Seen()}
    before: set[tuple[str, ...]] = set()
    for capture in captures:
        for line in _fields(capture):
            source, syn, length, sequence, port, octets, kinds = line.split("\t")
            key = (source, port, sequence, length, syn)
            if (int(length) or syn == "1") and key in before:
                continue
            before.add(key)
            options = bytes.fromhex(octets)
            _note(seen[source], syn == "1", int(length), options)
            if (str(KIND) in kinds.split(",")) != any(kind == KIND for kind, *_ in _options(options)):
                raise RigError(f"tshark finds other kinds than are in {octets}: {kinds}")
    for address, end in seen.items():
        if not end.segments:
            raise RigError(f"no segment of {address} was captured")
    return seen


def _fields(capture: Path) -> list[str]:
    """The fields of all TCP segments, as tshark prints them."""
    fields = ("ip.src", "tcp.flags.syn", "tcp.len", "tcp.seq_raw", "tcp.srcport", "tcp.options")
    words = [arg for name in (*fields, "tcp.option_kind") for arg in ("-e", name)]
    done = subprocess.run(
        [
            *("timeout", str(JUDGE_SECONDS), "tshark", "-r", str(capture), "-n"),
            *("-Y", "tcp", "-T", "fields", *words),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise RigError(f"tshark: {done.stderr.strip()[-300:]}")
    return done.stdout.splitlines()


def _options(options: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Kind, place in the TCP header and octets of each option."""
    at = 0
    while at < len(options) and options[at] != 0:
        length = 1 if options[at] == 1 else options[at + 1]
        yield options[at], HEADER_OCTETS + at, options[at : at + length]
        at += length


def _note(end: Seen, syn: bool, payload: int, options: bytes) -> None:
    found = [(at, option) for kind, at, option in _options(options) if kind == KIND]
    end.segments += 1
    end.payload += payload
    if payload and not any(len(option) > 4 for _, option in found):
        end.bare += 1
    for at, option in found:
        if len(option) == OFFERED:
            end.syn_offers += syn
            end.elsewhere += not syn
            continue
        end.elsewhere += 1
        end.unaligned += at % 4 != 0
        if len(option) > 4:
            end.transfers[len(option)] += 1
            begin, octets = int.from_bytes(option[12:14]), int.from_bytes(option[14:16])
            end.octets += octets
            end.outside += begin + octets > payload
