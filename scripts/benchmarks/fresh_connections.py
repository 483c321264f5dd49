"""Fresh HTTP connections in a second: the example server of warpline and nginx, each with clients over the
kernel's TCP.

ApacheBench (ab) opens a connection for each request of a page of 4 KiB, from 1, 8 or 64 clients at a time.
Both servers are at the other end of a veth pair of MTU 1500: nginx, with a worker, over the kernel's TCP, and
ours over a packet socket. The kernel places all threads on the CPUs of both ends.
"""

import os
import pathlib
import re
import shlex
import shutil
import tempfile
from collections.abc import Callable

from benchmarks.measurements import Measurement, Result, Setting
from benchmarks.namespaces import ADDRESSES, INTERFACE, Pair, Unavailable

CLIENTS = (1, 8, 64)
PAGE_BYTES = 4096
MTU = 1500
# No address of the kernel's, which would reset our connections.
OUR_ADDRESS = "198.18.0.3"
# A bound that no run reaches: the time ends it.
REQUESTS_MAX = 10_000_000
NGINX = """daemon off; worker_processes 1; user root; pid {folder}/nginx.pid; error_log stderr;
events {{ worker_connections 1024; }}
http {{ access_log off; client_body_temp_path {folder}/nginx; proxy_temp_path {folder}/nginx;
fastcgi_temp_path {folder}/nginx; uwsgi_temp_path {folder}/nginx; scgi_temp_path {folder}/nginx;
server {{ listen {address}:80 backlog=1024; location / {{ root {folder}/root; }} }} }}
"""


def ab_figures(output: str) -> Result:
    """The rate of connections of an ab run in which all requests were answered."""
    rate = re.search(r"^Requests per second:\s+([\d.]+)", output, re.MULTILINE)
    failed = re.search(r"^Failed requests:\s+(\d+)", output, re.MULTILINE)
    if rate is None or failed is None:
        raise Unavailable("ab printed no result")
    others = re.search(r"^Non-2xx responses:\s+(\d+)", output, re.MULTILINE)
    if int(failed[1]) or others:
        raise Unavailable(f"{failed[1]} requests failed, {others[1] if others else 0} were refused")
    return Result({"connections_per_s": float(rate[1])})


def ab(setting: Setting, clients: int, address: str) -> list[str]:
    """The command of the clients."""
    seconds = max(1, round(setting.duration))
    limits = ["-t", str(seconds), "-n", str(REQUESTS_MAX), "-c", str(clients)]
    return [*among(setting), "ab", "-q", *limits, f"http://{address}/page"]


def among(setting: Setting) -> list[str]:
    """What keeps a program on the CPUs of both ends."""
    return ["taskset", "-c", ",".join(map(str, setting.cpus))]


def our_server(setting: Setting, folder: str) -> list[str]:
    """The command of the example."""
    device = f"packet:{INTERFACE},mtu={MTU},address={OUR_ADDRESS}/24"
    program = setting.program.parent / "examples" / "http"
    return [*among(setting), str(program), "server", device, f"{folder}/root"]


def nginx_server(setting: Setting, folder: str) -> list[str]:
    """The command of nginx."""
    nginx = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin") or "nginx"
    return [*among(setting), nginx, "-c", f"{folder}/nginx.conf", "-e", "stderr"]


def start_ours(pair: Pair, setting: Setting, folder: str) -> None:
    """Starts the example, which must have been built."""
    words = our_server(setting, folder)
    if not pathlib.Path(words[-4]).exists():
        raise Unavailable("build it: cargo build --release --package warpline --example http")
    pair.server_that_says(words, "ready", setting.limit_seconds + 10)


def start_nginx(pair: Pair, setting: Setting, folder: str) -> None:
    """Starts nginx."""
    conf = NGINX.format(folder=folder, address=ADDRESSES[1])
    pathlib.Path(folder, "nginx.conf").write_text(conf)
    pair.server(nginx_server(setting, folder), 80, setting.limit_seconds + 10)


def measurement(
    server: str,
    clients: int,
    address: str,
    words: Callable[[Setting, str], list[str]],
    start: Callable[[Pair, Setting, str], None],
) -> Measurement:
    """One server with some clients."""

    def shown(setting: Setting) -> str:
        at_server = shlex.join(words(setting, "FOLDER"))
        return f"(veth, MTU {MTU}) {at_server} & {shlex.join(ab(setting, clients, address))}"

    def run(setting: Setting) -> Result:
        with (
            tempfile.TemporaryDirectory(prefix="warpline-http-") as folder,
            Pair(MTU, offloads=True) as pair,
        ):
            root = pathlib.Path(folder, "root")
            root.mkdir()
            (root / "page").write_bytes(os.urandom(PAGE_BYTES))
            start(pair, setting, folder)
            return ab_figures(pair.client(ab(setting, clients, address), setting.limit_seconds))

    about = f"fresh HTTP connections at {server}, {clients} at a time"
    needs = ("ab", "nginx") if server == "nginx" else ("ab",)
    name = f"http-fresh-{clients}-{server}"
    return Measurement(name, about, shown, run, needs, in_namespaces=True)


def fresh_measurements() -> list[Measurement]:
    """Both servers, with each number of clients."""
    found = []
    for clients in CLIENTS:
        found.append(measurement("warpline", clients, OUR_ADDRESS, our_server, start_ours))
        found.append(measurement("nginx", clients, ADDRESSES[1], nginx_server, start_nginx))
    return found
