"""check_capture passes good captures and names what is wrong with bad ones."""

from __future__ import annotations

import json
import subprocess
import tempfile
import unittest
from dataclasses import replace
from pathlib import Path
from typing import Any

from iwarp import mpa, tshark
from iwarp.capture import connections
from iwarp.mpa import EnhancedData, FpduWriter, Rtr

from .captures import INITIATOR, INITIATOR_V6, RESPONDER, RESPONDER_V6, Session, ethernet_frame, needs_tshark

COMMAND = Path(__file__).resolve().parent.parent / "check_capture"
FIRST_WRITE = 5
"""Index of the frame with the Initiator's second FPDU, its first RDMA Write: SYNs, startup and a Send come
before."""


@needs_tshark
class CheckCapture(unittest.TestCase):
    """One capture per fault."""

    def check(self, session: Session, *options: str) -> tuple[int, dict[str, Any]]:
        with tempfile.NamedTemporaryFile(suffix=".pcapng") as file:
            session.write(Path(file.name))
            words = [str(COMMAND), file.name, *options]
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, json.loads(done.stdout)

    def assert_fault(self, session: Session, text: str, *options: str) -> None:
        status, verdict = self.check(session, *options)
        self.assertEqual(status, 2, verdict)
        self.assertIn(text, " ".join(verdict["faults"]))

    @staticmethod
    def session(markers: bool = True, aligned: bool = True, mulpdu: int = 1430) -> Session:
        made = Session(markers)
        made.write_file(mulpdu, aligned)
        return made

    def test_good(self) -> None:
        """Markers on and off, segments aligned and not; tshark sees all but FPDUs that end where a Marker
        is due."""
        for markers in (False, True):
            for aligned in (False, True):
                with self.subTest(markers=markers, aligned=aligned):
                    status, verdict = self.check(self.session(markers, aligned))
                    self.assertEqual((status, verdict["faults"]), (0, []))
                    for direction in verdict["directions"]:
                        left_out = direction["fpdus_left_out_for_tshark"]
                        self.assertEqual(direction["fpdus"], 30)
                        self.assertEqual(direction["fpdus_by_tshark"], 30 - left_out)
                        self.assertLessEqual(left_out, 1 if markers else 0)

    def test_ipv6_and_vlan(self) -> None:
        """Every judge reads these frames too: nothing wrong is found, and what is wrong is."""
        for ipv6, vlan in ((True, None), (False, 7), (True, 7)):
            with self.subTest(ipv6=ipv6, vlan=vlan):
                host = (INITIATOR_V6 if ipv6 else INITIATOR)[0]
                session = Session(markers=False, ipv6=ipv6)
                session.write_file()
                if vlan:
                    session.tag(vlan)
                status, verdict = self.check(session, "--aligned", host, "--clean", host)
                self.assertEqual((status, verdict["faults"]), (0, []))
                found = [
                    (direction["host"], direction["fpdus_by_tshark"]) for direction in verdict["directions"]
                ]
                self.assertEqual(found, [(host, 30), ((RESPONDER_V6 if ipv6 else RESPONDER)[0], 30)])
                headers = 14 + (4 if vlan else 0) + (40 if ipv6 else 20)
                session.frames[FIRST_WRITE][headers + 16] ^= 1
                self.assert_fault(session, f"TCP checksum: 1 frames, first [{FIRST_WRITE + 1}]")

    def test_ipv6_misalignment_and_conduct(self) -> None:
        host = INITIATOR_V6[0]
        session = Session(markers=False, ipv6=True)
        session.write_file(aligned=False)
        self.assert_fault(session, "segments do not begin with an FPDU", "--aligned", host)
        session = Session(markers=False, ipv6=True)
        session.write_file()
        session.frames.insert(FIRST_WRITE + 9, session.frames[FIRST_WRITE])
        self.assert_fault(
            session, f"{host}: frame {FIRST_WRITE + 10}: sent again without a cause", "--clean", host
        )

    def test_reordered_and_retransmitted(self) -> None:
        session = self.session()
        frames = session.frames
        frames[FIRST_WRITE + 1], frames[FIRST_WRITE + 2] = frames[FIRST_WRITE + 2], frames[FIRST_WRITE + 1]
        frames.insert(FIRST_WRITE + 9, frames[FIRST_WRITE])
        self.assertEqual(self.check(session)[0], 0)

    def test_a_clean_path(self) -> None:
        """tshark's flags reach the judgement: what is sent again at once, or left out, is a fault of its
        sender."""
        clean = ("--clean", INITIATOR[0])
        status, verdict = self.check(self.session(), *clean)
        self.assertEqual((status, verdict["faults"], verdict["retransmissions"]), (0, [], 0))
        session = self.session()
        session.frames.insert(FIRST_WRITE + 9, session.frames[FIRST_WRITE])
        self.assert_fault(
            session, f"{INITIATOR[0]}: frame {FIRST_WRITE + 10}: sent again without a cause", *clean
        )
        self.assertEqual(self.check(session, "--clean", RESPONDER[0])[0], 0, "the other end's conduct")
        session = self.session()
        session.frames.append(session.frames.pop(FIRST_WRITE))
        self.assert_fault(
            session, f"{INITIATOR[0]}: frame {FIRST_WRITE + 1}: octets of the stream left out", *clean
        )

    def test_damaged_payload(self) -> None:
        """Without a good checksum and with one: the second is the FPDU CRC's to find (MPA-8-02)."""
        session = self.session()
        session.frames[FIRST_WRITE][200] ^= 1
        self.assert_fault(session, "mpa:2")
        session = self.session()
        damaged = bytearray(session.frames[FIRST_WRITE][54:])
        damaged[200] ^= 1
        session.frames[FIRST_WRITE] = session.segment(session.initiator, 20 + 44, bytes(damaged))
        self.assert_fault(session, "mpa:2")

    def test_bad_checksums(self) -> None:
        session = self.session()
        session.frames[FIRST_WRITE][50] ^= 1  # the TCP checksum itself
        self.assert_fault(session, "TCP checksum: 1 frames, first [6]")
        session = self.session()
        session.frames[FIRST_WRITE][24] ^= 1  # the IP checksum itself
        self.assert_fault(session, "IP checksum: 1 frames, first [6]")

    def test_loopback_has_no_tcp_checksums(self) -> None:
        session = self.session()
        session.frames[FIRST_WRITE][50] ^= 1  # the TCP checksum itself
        self.assertEqual(self.check(session, "--loopback")[0], 0)
        session.frames[FIRST_WRITE][24] ^= 1  # the IP checksum itself
        self.assert_fault(session, "IP checksum: 1 frames, first [6]", "--loopback")

    def test_minus_zero_checksum(self) -> None:
        """0xffff for 0x0000 is counted, not blamed; 0xffff for anything else is."""
        session = self.session()
        for port in range(1, 65536):
            frame = ethernet_frame((INITIATOR[0], port), RESPONDER, 1, 0x10, b"")
            if frame[50:52] == b"\0\0":
                break
        frame[50:52] = b"\xff\xff"
        session.frames.append(frame)
        status, verdict = self.check(session)
        self.assertEqual((status, verdict["minus_zero_tcp_checksums"]), (0, 1))
        session.frames[FIRST_WRITE][50:52] = b"\xff\xff"
        self.assert_fault(session, "TCP checksum: 1 frames, first [6]")

    def test_lost_frame(self) -> None:
        session = self.session()
        del session.frames[FIRST_WRITE]
        self.assert_fault(session, "are missing")

    def test_changed_retransmission(self) -> None:
        session = self.session()
        changed = bytearray(session.frames[FIRST_WRITE][54:])
        changed[-1] ^= 1
        session.frames.insert(FIRST_WRITE + 1, session.segment(session.initiator, 20 + 44, bytes(changed)))
        self.assert_fault(session, "retransmits other octets")

    def test_wrong_marker(self) -> None:
        """A good CRC does not help (MPA-8-03)."""
        session = Session(markers=True)
        writer = FpduWriter(markers=True, crc=True)
        writer.marker_error = 4
        session.send(session.initiator, writer.frame(bytes(600)))
        self.assert_fault(session, "mpa:3")

    def test_incomplete_fpdu(self) -> None:
        session = self.session()
        session.send(session.responder, b"\0\0\0\0")
        self.assert_fault(session, "after the last FPDU")

    def test_alignment(self) -> None:
        """Asked for one sender, and seen when it is not there."""
        self.assertEqual(self.check(self.session(), "--aligned", RESPONDER[0])[0], 0)
        self.assert_fault(self.session(aligned=False), "do not begin with an FPDU", "--aligned", RESPONDER[0])

    def test_no_connection(self) -> None:
        session = Session(markers=False)
        session.frames = session.frames[:2]
        self.assert_fault(session, "0 accepted MPA connections")

    def test_startup_frames(self) -> None:
        """tshark reads startup frames of every revision as we do; what it reads otherwise is a fault."""
        word = EnhancedData(3, 9, True, Rtr.READ | Rtr.WRITE)
        for made in (
            Session(True, private_data=b"hello"),
            Session(False, revision=2, private_data=b"x", enhanced=word),
            Session(True, revision=0),
        ):
            made.write_file()
            status, verdict = self.check(made)
            self.assertEqual((status, verdict["faults"]), (0, []))
            with tempfile.NamedTemporaryFile(suffix=".pcapng") as file:
                made.write(Path(file.name))
                found = connections(Path(file.name))
                seen = tshark.check_startups(found)
                for change in (
                    {"revision": 3},
                    {"crc": False},
                    {"markers": not made.markers},
                    {"private_data": b"?"},
                ):
                    initiator = found[0].initiator
                    initiator.startup = replace(initiator.startup, **change)
                    self.assertEqual(len(tshark.startup_faults(seen, found)), 1, change)
                    initiator.startup = replace(found[0].responder.startup, key=mpa.REQUEST_KEY)

    def test_a_reply_that_is_captured_before_its_request(self) -> None:
        session = self.session()
        request = next(at for at, frame in enumerate(session.frames) if mpa.REQUEST_KEY in frame)
        reply = next(at for at, frame in enumerate(session.frames) if mpa.REPLY_KEY in frame)
        session.frames.insert(reply, session.frames.pop(request))
        status, verdict = self.check(session)
        self.assertEqual((status, verdict["faults"]), (0, []))

    def test_malformed_frame(self) -> None:
        """A TCP header that announces more octets than the frame has."""
        session = self.session()
        frame = ethernet_frame(RESPONDER, ("198.18.0.9", 9), 1, 0x10, b"")
        frame[46] = 0xF0
        session.frames.append(frame)
        status, verdict = self.check(session)
        self.assertEqual(status, 2, verdict)


if __name__ == "__main__":
    unittest.main()
