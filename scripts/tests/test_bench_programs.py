"""Tests of how scripts/bench starts programs, and of what it reads in their output."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from benchmarks import fresh_connections, measurements, namespaces, over_veth, references
from benchmarks.measurements import Setting
from benchmarks.namespaces import Pair, Unavailable

PROGRAM = pathlib.Path("/usr/bin/warpline-bench")
TWO_CPUS = Setting(PROGRAM, "--no-huge -m 1024", [0, 1], 2)
ONE_CPU = Setting(PROGRAM, "", [1], 2)

# Recorded, with lines and columns that are not read left out where a "..." stands.
AB = """\
Concurrency Level:      8
Time taken for tests:   3.000 seconds
Complete requests:      7978
Failed requests:        0
Requests per second:    2659.17 [#/sec] (mean)
Time per request:       3.008 [ms] (mean)
...
"""
SOCKPERF = """\
sockperf: \x1b[2;35m== version #3.7-no.git == \x1b[0m
sockperf: [Valid Duration] RunTime=0.550 sec; SentMessages=6458; ReceivedMessages=6458
sockperf: \x1b[2;35m====> avg-latency=42.597 (std-dev=388.322)\x1b[0m
sockperf: Summary: Latency is 42.597 usec
sockperf: \x1b[2;35mTotal 6458 observations\x1b[0m; each percentile contains 64.58 observations
sockperf: ---> <MAX> observation = 6922.789
sockperf: ---> percentile 99.999 = 6922.789
sockperf: ---> percentile 99.990 = 5969.424
sockperf: ---> percentile 99.900 = 5571.633
sockperf: ---> percentile 99.000 =  477.617
sockperf: ---> percentile 90.000 =   15.136
sockperf: ---> percentile 75.000 =    4.930
sockperf: ---> percentile 50.000 =    3.371
sockperf: ---> percentile 25.000 =    3.343
sockperf: ---> <MIN> observation =    3.249
"""
UCX = """\
|    Stage     | # iterations | 50.0%ile | average | overall |  average |  overall |  average  |  overall  |
+--------------+--------------+----------+---------+---------+----------+----------+-----------+-----------+
[thread 0]              3628  11910.210   276.811   276.811      225.79     225.79        3613        3613
Final:                  5000  11910.386   430.513   318.987      145.18     195.93        2323        3135
"""
FI_PINGPONG = """\
bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64k     2k      =2k      250m        0.71s    369.07     177.57       0.01
"""


class OutputTest(unittest.TestCase):
    def test_iperf3(self) -> None:
        report = {"end": {"sum_sent": {"bits_per_second": 9e9}, "sum_received": {"bits_per_second": 8e9}}}
        self.assertEqual(references.iperf3_figures(json.dumps(report)).values, {"gbit_per_s": 8.0})

    def test_sockperf(self) -> None:
        found = references.sockperf_figures(SOCKPERF)
        self.assertEqual(
            found.values,
            {
                "mean_us": 42.597,
                "min_us": 3.249,
                "p50_us": 3.371,
                "p90_us": 15.136,
                "p99_us": 477.617,
                "p999_us": 5571.633,
                "max_us": 6922.789,
            },
        )
        self.assertEqual(found.distribution[1], (50.0, 3.371))

    def test_ucx(self) -> None:
        latency = references.ucx_latency_figures(UCX)
        self.assertEqual(latency.values, {"p50_us": 11910.386, "mean_us": 318.987})
        bandwidth = references.ucx_bandwidth_figures(UCX).values["gbit_per_s"]
        # A message of 64 KiB each 318.987 us.
        self.assertAlmostEqual(bandwidth, 65536 * 8 / 318.987e-6 / 1e9, places=3)

    def test_libfabric(self) -> None:
        self.assertEqual(references.libfabric_latency_figures(FI_PINGPONG).values, {"mean_us": 177.57})
        bandwidth = references.libfabric_bandwidth_figures(FI_PINGPONG).values["gbit_per_s"]
        self.assertAlmostEqual(bandwidth, 65536 * 8 / 177.57e-6 / 1e9, places=3)

    def test_output_without_a_result_is_refused(self) -> None:
        for figures in (
            references.iperf3_figures,
            references.sockperf_figures,
            references.ucx_latency_figures,
            references.ucx_bandwidth_figures,
            references.libfabric_latency_figures,
        ):
            for output in ("", "{}", "error: unable to connect\n"):
                with self.assertRaises(Unavailable):
                    figures(output)

    def test_the_reason_is_where_programs_say_it(self) -> None:
        usage = "error: unexpected argument '--x'\n\nFor more information, try '--help'.\n"
        self.assertEqual(namespaces.reason(usage), "error: unexpected argument '--x'")
        self.assertEqual(namespaces.reason("starting\nno such device\n\n"), "no such device")
        self.assertEqual(namespaces.reason(""), "")


class ReportTest(unittest.TestCase):
    def test_a_test_of_one_size(self) -> None:
        report = {"size": 65536, "gbit_per_s": 40.0, "mmsg_per_s": 0.08}
        found = measurements.figures_of_tests([report])
        self.assertEqual(found.values, {"gbit_per_s": 40.0, "mmsg_per_s": 0.08})

    def test_a_sweep(self) -> None:
        found = measurements.figures_of_tests(
            [{"size": size, "gbit_per_s": size / 2, "mmsg_per_s": 1.0} for size in (2, 4)]
        )
        self.assertEqual(
            found.values,
            {"gbit_per_s/2": 1.0, "mmsg_per_s/2": 1.0, "gbit_per_s/4": 2.0, "mmsg_per_s/4": 1.0},
        )

    def test_latency(self) -> None:
        times = {"min_us": 1.0, "p50_us": 2.0, "mean_us": 2.5, "p99_us": 3.0, "p999_us": 4.0, "max_us": 9.0}
        found = measurements.figures_of_tests([{"size": 64, **times}])
        self.assertEqual(found.values, times)
        self.assertEqual(
            found.distribution, [(0.0, 1.0), (50.0, 2.0), (99.0, 3.0), (99.9, 4.0), (100.0, 9.0)]
        )
        histogram = [[1.0, 90], [2.0, 9], [7.0, 1]]
        found = measurements.figures_of_tests([{"size": 64, **times, "histogram": histogram}])
        self.assertEqual([time for percent, time in found.distribution if percent <= 90], [1.0] * 6)
        self.assertEqual(dict(found.distribution)[99.0], 2.0)
        self.assertEqual(dict(found.distribution)[99.5], 7.0)
        self.assertNotIn("histogram", found.reports[0], "the results stay small")

    def test_floor(self) -> None:
        figure = {"kind": "hand-off", "mtu": 9000, "region_bytes": 256 << 20, "crc": True, "gbit_per_s": 30.0}
        report = {
            "figures": [figure],
            "half_round_trip": {"median_ns": 300.0},
            "packet_rate": {"transmit_mpps": 90.0, "receive_mpps": 80.0},
        }
        self.assertEqual(
            measurements.figures_of_floor([report]).values,
            {
                "gbit_per_s/hand-off 9000 256M crc-on": 30.0,
                "half_round_trip_ns": 300.0,
                "transmit_mpps": 90.0,
                "receive_mpps": 80.0,
            },
        )
        one_cpu = measurements.figures_of_floor([{**report, "half_round_trip": None}])
        self.assertNotIn("half_round_trip_ns", one_cpu.values)

    def test_cores(self) -> None:
        rates = {"mmsg_per_s": 9.0, "gbit_per_s": 4.6, "ratio": {"median": 0.97}}
        report = {
            "scale": [{"share": "domain", **rates}],
            "stall": {**rates, "ratio": {"median": 1.01}},
            "deregister": {"deregister_p50_us": 20.0, "deregister_p99_us": 40.0, "register_p50_us": 9.0},
            "hand_over": {"hand_over_ns": 21.0, "bare_ns": 9.0, "beyond_ns": {"median": 12.5}},
        }
        expected = {
            "mmsg_per_s/domain shared": 9.0,
            "gbit_per_s/domain shared": 4.6,
            "ratio/domain shared": 0.97,
            "ratio/beside a stalled core": 1.01,
            "deregister_p50_us": 20.0,
            "deregister_p99_us": 40.0,
            "hand_over_beyond_ns": 12.5,
        }
        self.assertEqual(measurements.figures_of_cores([report]).values, expected)
        only_scale = {**report, "stall": None, "deregister": None, "hand_over": None}
        self.assertEqual(
            list(measurements.figures_of_cores([only_scale]).values), [*expected][:3], "what was not measured"
        )

    def test_units(self) -> None:
        for figure, unit in {
            "gbit_per_s/64": "Gb/s",
            "mmsg_per_s": "M/s",
            "p50_us": "us",
            "half_round_trip_ns": "ns",
            "receive_mpps": "Mpps",
            "connections_per_s": "1/s",
        }.items():
            self.assertEqual(measurements.unit_of(figure), unit)


class CommandTest(unittest.TestCase):
    def shown(self, name: str, setting: Setting) -> str:
        every = measurements.own_measurements() + over_veth.veth_measurements()
        every += references.reference_measurements()
        return next(one for one in every if one.name == name).shown(setting)

    def test_two_processes_over_veth(self) -> None:
        at_server, at_client = self.shown("write-bw-64k-1500-veth-packet", TWO_CPUS).split(" & ")
        device = "packet:wl0,mtu=1500,address=198.18.0.3/24"
        self.assertIn(f"--device {device}", at_client)
        self.assertTrue(at_server.endswith("--listen 198.18.0.4"), at_server)
        self.assertTrue(at_client.endswith("--size 64k -D 2 --json - 198.18.0.4"), at_client)
        said = 'a line of DPDK\n{"gbit_per_s": 20.5}'
        self.assertEqual(over_veth.write_figures(said).values, {"gbit_per_s": 20.5})

    def test_ours(self) -> None:
        self.assertEqual(
            self.shown("write-bw-64k-9000-256M", TWO_CPUS),
            "/usr/bin/warpline-bench write-bw --mtu 9000 --size 64k --duration 2 --region 256M --cpus 0,1 "
            "--eal '--no-huge -m 1024'",
        )
        self.assertTrue(
            self.shown("cores-64k", ONE_CPU).endswith(
                "cores --size 64k --depth 8 --duration 2 --only scale,stall --cpus 1"
            )
        )
        self.assertTrue(self.shown("ping", ONE_CPU).endswith("--cpus 1"))

    def test_references_run_on_the_cpus_of_our_ends(self) -> None:
        said = self.shown("sockperf-tcp-64", TWO_CPUS)
        self.assertIn("taskset -c 1 sockperf server", said)
        self.assertIn("taskset -c 0 sockperf ping-pong", said)
        self.assertEqual(self.shown("iperf3-veth-1500", TWO_CPUS).count("taskset -c 0,1 iperf3"), 2)
        self.assertNotIn("taskset", self.shown("iperf3-veth-1500", ONE_CPU))
        self.assertIn("MTU 9000, offloads off", self.shown("iperf3-veth-9000-no-offloads", TWO_CPUS))

    def test_both_servers_of_fresh_connections_have_the_same_clients(self) -> None:
        ours, nginx = (self.shown(f"http-fresh-8-{server}", TWO_CPUS) for server in ("warpline", "nginx"))
        clients = "taskset -c 0,1 ab -q -t 2 -n 10000000 -c 8 http://198.18.0."
        self.assertIn("taskset -c 0,1 /usr/bin/examples/http server packet:wl0,", ours)
        self.assertEqual((ours.count(clients), nginx.count(clients)), (1, 1))


class FreshConnectionsTest(unittest.TestCase):
    def test_the_rate_of_answered_requests(self) -> None:
        found = fresh_connections.ab_figures(AB)
        self.assertEqual(found.values, {"connections_per_s": 2659.17})

    def test_a_run_with_failures_is_none(self) -> None:
        for wrong in (
            AB.replace("Failed requests:        0", "Failed requests:        3"),
            AB + "Non-2xx responses:      7978\n",
            "",
        ):
            with self.assertRaises(Unavailable):
                fresh_connections.ab_figures(wrong)


@unittest.skipIf(namespaces.missing(), "no network namespaces here")
class PairTest(unittest.TestCase):
    @staticmethod
    def existing() -> set[str]:
        names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        return {line.split()[0] for line in names.splitlines() if f"-{os.getpid()}-" in line}

    def test_ends_with_its_servers(self) -> None:
        listen = "import socket, time; s = socket.create_server(('198.18.0.2', 5001)); time.sleep(300)"
        with Pair(9000, offloads=False) as pair:
            self.assertEqual(self.existing(), set(pair.namespaces))
            server = pair.server(["python3", "-c", listen], 5001, 120)
            said = pair.client(
                ["python3", "-c", "import socket; socket.create_connection(('198.18.0.2', 5001))"], 120
            )
            self.assertEqual(said, "")
            link = pair.client(["ip", "link", "show", "wl0"], 120)
            self.assertIn("mtu 9000", link)
            self.assertIn("tcp-segmentation-offload: off", pair.client(["ethtool", "-k", "wl0"], 120))
            self.assertFalse(server.has_ended())
        self.assertTrue(server.has_ended())
        self.assertEqual(self.existing(), set())

    def test_a_server_that_ends_is_named(self) -> None:
        with (
            self.assertRaisesRegex(Unavailable, "python3 ended before it listened: no device"),
            Pair(1500) as pair,
        ):
            pair.server(["python3", "-c", "import sys; sys.exit('no device')"], 5001, 120)
        self.assertEqual(self.existing(), set())


if __name__ == "__main__":
    unittest.main()
