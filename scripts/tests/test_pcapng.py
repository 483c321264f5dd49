"""Wireshark's own reader opens the captures that warpline writes."""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FIELDS = ["frame.time_epoch", "frame.interface_name", "frame.packet_flags_direction", "frame.len", "eth.src"]
INBOUND, OUTBOUND = "0x00000001", "0x00000002"
# As scripts/test compiles the unit tests of the same crate, so that it is not compiled once more.
UNOPTIMISED = {"CARGO_PROFILE_TEST_OPT_LEVEL": "0"}
A, B = "02:00:00:00:00:01", "02:00:00:00:00:02"


class PcapngTest(unittest.TestCase):
    def test_tshark_reads_every_field(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            capture = str(pathlib.Path(folder) / "capture.pcapng")
            cargo = ["cargo", "run", "--quiet", "--package", "warpline-dataplane", "--no-default-features"]
            cargo += ["--profile", "test", "--example", "capture", "--", capture]
            subprocess.run(cargo, cwd=ROOT, env=os.environ | UNOPTIMISED, check=True, timeout=240)
            tshark = ["tshark", "-n", "-r", capture, "-T", "fields"]
            for field in FIELDS:
                tshark += ["-e", field]
            result = subprocess.run(tshark, capture_output=True, text=True, check=True, timeout=60)

        # Run as root, tshark says so; anything else would be a complaint about the file.
        complaints = [line for line in result.stderr.splitlines() if 'user "root"' not in line and line]
        self.assertEqual(complaints, [])
        packets = [line.split("\t") for line in result.stdout.splitlines()]
        sent = [packet for packet in packets if packet[2] == OUTBOUND]
        received = [packet for packet in packets if packet[2] == INBOUND]
        self.assertEqual(len(sent) + len(received), len(packets))
        for number, packet in enumerate(sent):
            time = f"1704067200.{number * 10_000:09}"
            self.assertEqual(packet, [time, "link0", OUTBOUND, str(100 + number), A])
        # One microsecond there and one back.
        answered = {f"1704067200.{number * 10_000 + 2000:09}" for number in range(10)}
        self.assertEqual(len(sent), 10)
        self.assertTrue(0 < len(received) < 10, "some frames were lost")
        for packet in received:
            self.assertIn(packet[0], answered)
            self.assertEqual(packet[1:], ["link0", INBOUND, "60", B])


if __name__ == "__main__":
    unittest.main()
