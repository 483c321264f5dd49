"""RDMA Writes between two processes over a veth pair: through our packet sockets, and through DPDK's."""

import re
import shlex

from benchmarks.measurements import MTUS, Measurement, Result, Setting, read_reports
from benchmarks.namespaces import INTERFACE, Pair
from benchmarks.references import placed

# No addresses of the kernel's, which would reset our connections.
ADDRESSES = ("198.18.0.3", "198.18.0.4")
KINDS = {"packet": "packet sockets", "af_packet": "net_af_packet"}


def write_figures(output: str) -> Result:
    """The rate of the client's report."""
    report = read_reports(re.sub(r"^[^\[{]*", "", output))[0]
    return Result({"gbit_per_s": float(report["gbit_per_s"])})


def words(setting: Setting, kind: str, mtu: int, end: int) -> list[str]:
    """The command of the client (0) or the server (1)."""
    device = f"{kind}:{INTERFACE},mtu={mtu},address={ADDRESSES[end]}/24"
    eal = f"{setting.eal} --file-prefix=warpline-veth-{end}"
    command = [*placed(setting, end), str(setting.program), "write-bw", "--device", device, "--eal", eal]
    if end == 1:
        return [*command, "--listen", ADDRESSES[1]]
    seconds = str(max(1, round(setting.duration)))
    return [*command, "--size", "64k", "-D", seconds, "--json", "-", ADDRESSES[1]]


def over_veth(kind: str, mtu: int) -> Measurement:
    """Writes of 64 KiB through one kind of device at both ends."""

    def shown(setting: Setting) -> str:
        at_client, at_server = (shlex.join(words(setting, kind, mtu, end)) for end in (0, 1))
        return f"(veth, MTU {mtu}, offloads on) {at_server} & {at_client}"

    def run(setting: Setting) -> Result:
        with Pair(mtu, offloads=True) as pair:
            pair.server_that_says(words(setting, kind, mtu, 1), "waiting", setting.limit_seconds + 10)
            return write_figures(pair.client(words(setting, kind, mtu, 0), setting.limit_seconds))

    name = f"write-bw-64k-{mtu}-veth-{kind.replace('_', '-')}"
    about = f"RDMA Write over veth, {KINDS[kind]}, 64 KiB, MTU {mtu}"
    return Measurement(name, about, shown, run, in_namespaces=True, cpus=2)


def veth_measurements() -> list[Measurement]:
    """Both kinds of devices, at each MTU."""
    return [over_veth(kind, mtu) for mtu in MTUS for kind in KINDS]
