"""The programs of Debian's packages and their arguments, and what has to come of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from .case import BOTH, DIRECTORY, TWO_HOSTS, Case, Ending, Expected
from .fabtests import fabtests
from .mpi import mpi
from .pair import SERVER, SERVER_IPV6

RDMACM, IBVERBS, PERFTEST = "rdmacm-utils", "ibverbs-utils", "perftest"
QPERF, FIO, LIBFABRIC = "qperf", "fio", "libfabric-bin"
RPING_PORT, EXAMPLE_PORT, RCOPY_PORT = 7174, 7471, 7427
PERFTEST_PORT: Final = 18515
FIO_PORT: Final = 9999
QPERF_PORT: Final = 19765
PINGPONG_PORT: Final = 47592
ITERATIONS: Final = 500
_RESULT: Final = r"^ *{size} +{count} +[0-9.]+ +[0-9.]*[1-9]"
"""A line of a table of perftest. The first rate is a peak, which it leaves out at times."""
_RSOCKETS: Final = "rsockets write to descriptors that only a kernel's connection manager has"


def all_cases() -> Iterator[Case]:
    """Every case, package by package."""
    yield from _rdmacm()
    yield from _ibverbs()
    yield from _perftest()
    yield from _qperf()
    yield from _fio()
    yield from _libfabric()
    yield from mpi()
    yield from fabtests()


def _rdmacm() -> Iterator[Case]:
    def rping(count: int, *more: str, address: str = SERVER, server: tuple[str, ...] = ()) -> Case:
        return Case(
            RDMACM,
            ("rping", "-c", "-a", address, "-v", "-V", "-C", str(count), *more),
            # The buffer of the server has its own size.
            ("rping", "-s", "-a", address, "-v", "-V", *(server or ("-C", str(count), *more))),
            shows=rf"rdma-ping-{count - 1}:",
            server_shows=rf"rdma-ping-{count - 1}:",
            fails_with="cq completion failed|data mismatch",
            port=RPING_PORT,
        )

    yield replace(rping(10), connections=1, quick=BOTH)
    yield replace(rping(10, address=SERVER_IPV6), connections=1)
    yield replace(rping(10, "-q"), connections=1)
    for size in (64, 4096, 65535):
        yield rping(100, "-S", str(size))
    persistent = replace(rping(5000, "-S", "1000", server=("-P", "-S", "1000")), seconds=60)
    yield replace(persistent, ending=Ending.STOPPED, clients=4)
    yield replace(
        persistent, client=(*persistent.client, "-q"), server=(*persistent.server, "-q"),
        ending=Ending.STOPPED, clients=4,
    )  # fmt: skip

    def ucmatose(*more: str) -> Case:
        done = "return status 0"
        return Case(
            RDMACM,
            ("ucmatose", "-s", SERVER, *more),
            ("ucmatose", *more),
            shows=done,
            server_shows=done,
            port=EXAMPLE_PORT,
        )

    yield replace(ucmatose(), connections=1, quick=TWO_HOSTS)
    yield ucmatose("-c", "20", "-C", "50", "-S", "10000")
    yield ucmatose("-m")

    for number, program in enumerate(("rdma", "rdma_x")):
        client, server = (f"{program}{end}" for end in (("_client", "_server"), ("client", "server"))[number])
        yield Case(
            RDMACM, (client, "-s", SERVER), (server,), shows="end 0", server_shows="end 0",
            connections=1, quick=TWO_HOSTS if number == 0 else (), port=EXAMPLE_PORT,
        )  # fmt: skip
    yield Case(
        RDMACM, ("rdma_xclient", "-s", SERVER, "-c", "x"), ("rdma_xserver", "-c", "x"),
        expected=Expected.UNSUPPORTED, reason="XRC is InfiniBand's", ending=Ending.STOPPED, port=EXAMPLE_PORT,
    )  # fmt: skip
    for count in (50, 100):
        yield Case(
            RDMACM, ("cmtime", "-s", SERVER, "-c", str(count)), ("cmtime", "-b", SERVER, "-c", str(count)),
            shows=r"destroy +:", fails_with="event: RDMA_CM_EVENT", ending=Ending.STOPPED, port=EXAMPLE_PORT,
        )  # fmt: skip
    for program in ("rstream", "riostream"):
        words = (program, "-I", "100", "-C", "10", "-T", "v")
        yield Case(
            RDMACM, (*words, "-s", SERVER), words,
            shows=r"Gb/sec", seconds=10, expected=Expected.MEASURED, reason=_RSOCKETS, port=EXAMPLE_PORT,
        )  # fmt: skip
    yield Case(
        RDMACM, ("rcopy", "/etc/services", f"{SERVER}:{DIRECTORY}/copied"), ("rcopy",), shows=r"Gb/sec",
        seconds=10, port=RCOPY_PORT, ending=Ending.STOPPED, expected=Expected.MEASURED, reason=_RSOCKETS,
    )  # fmt: skip


def _ibverbs() -> Iterator[Case]:
    yield Case(IBVERBS, ("ibv_devices",), shows="warpline0")
    yield Case(IBVERBS, ("ibv_devinfo", "-v"), shows=r"PORT_ACTIVE", quick=TWO_HOSTS)
    yield Case(IBVERBS, ("ibv_asyncwatch",), shows=r"async event FD", interrupted=True)


def _perftest() -> Iterator[Case]:
    def perftest(kind: str, *more: str, shows: str = "", client_more: tuple[str, ...] = ()) -> Case:
        words = (f"ib_{kind}", "-R", "-F", *more)
        return Case(
            PERFTEST, (*words, *client_more, SERVER), words, shows=shows,
            fails_with=r"[Cc]ouldn't|[Ff]ailed|Completion with error|ERRNO", seconds=60, port=PERFTEST_PORT,
        )  # fmt: skip

    def sized(kind: str, *more: str, size: str = r"\d+", count: str = str(ITERATIONS)) -> Case:
        return perftest(kind, "-n", str(ITERATIONS), *more, shows=_RESULT.format(size=size, count=count))

    bandwidths = ("write_bw", "read_bw", "send_bw", "atomic_bw")
    latencies = ("write_lat", "read_lat", "send_lat", "atomic_lat")
    quick = {"write_bw": BOTH, "read_bw": TWO_HOSTS, "atomic_bw": TWO_HOSTS, "send_lat": TWO_HOSTS}
    for kind in bandwidths:
        yield replace(sized(kind), quick=quick.get(kind, ()))
    for kind in latencies:
        yield replace(sized(kind), quick=quick.get(kind, ()), connections=2)
    for kind in (*bandwidths[:3], *latencies[:3]):
        all_sizes = perftest(kind, "-a", "-n", "20", shows=_RESULT.format(size=1 << 23, count=20))
        yield replace(all_sizes, seconds=120)
    for kind in bandwidths:
        yield sized(kind, "-b")
    # perftest has no events for Writes.
    for kind in (*bandwidths[1:], "send_lat", "read_lat", "atomic_lat"):
        yield sized(kind, "-e")
    for kind in bandwidths:
        yield sized(kind, "-q", "16", count=str(16 * ITERATIONS))
    for kind in ("send_bw", "send_lat"):
        yield sized(kind, "--use-srq")
    yield replace(
        sized("send_bw", "--use-srq", "-q", "16", count=str(16 * ITERATIONS)), seconds=10,
        expected=Expected.MEASURED, reason="perftest grants credits to the queue pair that has posted a "
        "shared receive, not to the one that has received",
    )  # fmt: skip
    for kind in (*bandwidths, *latencies):
        yield perftest(kind, "-D", "3", shows=_RESULT.format(size=r"\d+", count=r"\d+"))
    for kind in ("write_bw", "send_bw", "write_lat", "send_lat"):
        for size in ("32", "64", "220"):
            yield sized(kind, "-s", size, "-I", size, size=size)


def _qperf() -> Iterator[Case]:
    tests = {
        "latency": ("rc_lat", "rc_rdma_write_lat", "rc_rdma_read_lat", "rc_rdma_write_poll_lat"),
        "bw": ("rc_bw", "rc_bi_bw", "rc_rdma_write_bw", "rc_rdma_read_bw"),
        "msg_rate": (
            *("rc_compare_swap_mr", "rc_fetch_add_mr"),
            *("ver_rc_compare_swap", "ver_rc_fetch_add"),
        ),
    }
    for measured, test in ((measured, test) for measured, some in tests.items() for test in some):
        yield Case(
            QPERF, ("qperf", "-t", "1", "-cm1", SERVER, test), ("qperf",), shows=rf"{measured} +=",
            ending=Ending.STOPPED, port=QPERF_PORT, quick=TWO_HOSTS if test == "rc_lat" else (),
        )  # fmt: skip


def _fio() -> Iterator[Case]:
    # The engine comes first: the options after it are its own.
    both = ("fio", "--name=verbs", "--ioengine=rdma", f"--port={FIO_PORT}", "--bs=64k", "--size=16m")
    sender = (*both, f"--hostname={SERVER}", "--rw=write", "--iodepth=4")
    receiver = (*both, "--rw=read", "--iodepth=16")
    for verb in ("write", "read", "send"):
        yield Case(
            FIO, (*sender, f"--verb={verb}"), receiver, shows=r"err= 0", server_shows=r"err= 0", port=FIO_PORT
        )
    verify = ("--verify=crc32c", "--verify_state_save=0")
    yield Case(
        FIO, (*sender, "--verb=send", *verify, "--do_verify=0"), (*receiver, *verify),
        shows=r"err= 0", server_shows=r"err= 0", port=FIO_PORT,
    )  # fmt: skip


def _libfabric() -> Iterator[Case]:
    yield Case(LIBFABRIC, ("fi_info", "-p", "verbs"), shows=r"FI_PROTO_IWARP")
    for provider, kind in (("verbs", "msg"), ("verbs;ofi_rxm", "rdm")):
        words = ("fi_pingpong", "-p", provider, "-e", kind, "-I", "100", "-c")
        yield Case(LIBFABRIC, (*words, SERVER), words, shows=r"^1m +100 +=100", port=PINGPONG_PORT)
