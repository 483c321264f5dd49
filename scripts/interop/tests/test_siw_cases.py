"""What the cases against siw take for an end of rping, and what becomes of a case that fails."""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import cast
from unittest import mock

from guest_rig.machine import Guest, Outcome
from guest_rig.remote import KILLED, Remote
from rig.built import BENCHMARK
from rig.processes import RigError
from siw_rig.cases import CAPTURE, STUCK, Case, Rig, Table, judge, require_done, require_left
from siw_rig.ours import Ours, Place
from siw_rig.remote import ByHand, GuestRemote

from .captures import RESPONDER, Session, ethernet_frame, needs_tshark

SAW_THE_END = "client DISCONNECT EVENT...\n"
RST = 0x04


class RpingsEnd(unittest.TestCase):
    def test_done(self) -> None:
        require_done(0, "client DISCONNECT EVENT...\n")
        require_done(255, "client DISCONNECT EVENT...\nrdma_get_cm_event: Bad file descriptor\n")

    def test_not_done(self) -> None:
        for status, output in [
            (255, ""),
            (255, "client DISCONNECT EVENT...\n"),
            (255, "data mismatch!\nclient DISCONNECT EVENT...\nrdma_get_cm_event: Bad file descriptor\n"),
            (1, "cq completion failed status 5\nrdma_get_cm_event: Bad file descriptor\n"),
        ]:
            with self.assertRaises(RigError, msg=output):
                require_done(status, output)

    def test_left(self) -> None:
        """As rping was seen to end when its server had closed: each a different order of its threads."""
        for output in [
            f"{SAW_THE_END}wait for RDMA_WRITE_ADV state 10\n",
            f"{SAW_THE_END}wait for RDMA_WRITE_COMPLETE state 10\n",
            f"{SAW_THE_END}wait for RDMA_WRITE_ADV state 6\nrping client failed: -1\n",
        ]:
            self.assertFalse(require_left(output))
            self.assertTrue(require_left(f"{output}{STUCK}\n"))

    def test_left_otherwise(self) -> None:
        """Stuck or not, data that came wrong and requests that failed are not forgiven, nor an end that
        rping has not seen."""
        for output in [
            "",
            "cma event RDMA_CM_EVENT_UNREACHABLE, error -110\n",
            "wait for RDMA_WRITE_ADV state 6\nrping client failed: -1\n",
            f"{SAW_THE_END}data mismatch!\n",
            f"cq completion failed status 4\n{SAW_THE_END}wait for RDMA_WRITE_ADV state 10\n",
        ]:
            for stuck in ("", f"{STUCK}\n"):
                with self.assertRaises(RigError, msg=output):
                    require_left(f"{output}{stuck}")


class OneAnswer:
    """A guest that answers everything in the same way."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome

    def run(self, _shell: str, _seconds: float) -> Outcome:
        """Its answer."""
        return self.outcome


class NoEnd(Remote):
    """Another end whose program does not end."""

    cleared = False

    def run(self, shell: str, seconds: float) -> Outcome:
        raise RigError(f"{shell} did not end")

    def start(self, shell: str) -> None:
        pass

    def stop(self, signal: str = "TERM") -> None:
        pass

    def clear(self) -> str:
        self.cleared = True
        return "thread 7 in ucma_get_event\n"


def rig(remote: Remote, directory: Path, ours: str = "198.18.0.2") -> Rig:
    """Nothing of it runs."""
    return Rig(remote, Ours(Place(None, "", "", 1500, ours, 24), directory, BENCHMARK), directory)


class TypedByHand(unittest.TestCase):
    """What the user tells of a command is what the cases judge."""

    def told(self, *lines: str) -> Outcome:
        with (
            mock.patch("builtins.input", side_effect=lines),
            contextlib.redirect_stdout(io.StringIO()) as shown,
        ):
            outcome = ByHand("198.18.0.9").run("rping -c", 1)
        self.assertIn("on 198.18.0.9, run:\n\n    rping -c\n", shown.getvalue())
        return outcome

    def test_its_status_and_its_words(self) -> None:
        self.assertEqual(self.told("", ""), Outcome(0, ""))
        rejected = "cma event RDMA_CM_EVENT_REJECTED, error 28"
        self.assertEqual(
            self.told("255", rejected, "wait for CONNECTED state 4", ""),
            Outcome(255, f"{rejected}\nwait for CONNECTED state 4"),
        )
        self.assertFalse(require_left(self.told("", "client DISCONNECT EVENT...", "").output))
        with self.assertRaises(RigError):
            require_left(self.told("", "").output)


class Failures(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.directory)

    def test_what_the_guest_had_to_end_has_failed(self) -> None:
        killed = GuestRemote(cast(Guest, OneAnswer(Outcome(KILLED, "half a line"))), "198.18.0.1")
        with self.assertRaisesRegex(RigError, "rping -c did not end in 3 s; it said: half a line"):
            killed.run("rping -c", 3)
        ended = GuestRemote(cast(Guest, OneAnswer(Outcome(255, ""))), "198.18.0.1")
        self.assertEqual(ended.run("rping -c", 3).status, 255)

    def test_a_failure_leaves_what_explains_it(self) -> None:
        """The capture and what the other end's threads wait for are kept; the next case's capture is its
        own."""
        (self.directory / CAPTURE).write_text("frames")
        remote, table = NoEnd("198.18.0.1"), Table()
        case = Case("rping pings us", "we disconnect", lambda rig: rig.client(64, 1)[1])
        with contextlib.redirect_stdout(io.StringIO()):
            table.play(rig(remote, self.directory), case)
        [(*_, passed, detail)] = table.rows
        self.assertFalse(passed)
        self.assertTrue(remote.cleared)
        kept = Path(detail.rpartition(" ")[2])
        self.addCleanup(shutil.rmtree, kept)
        self.assertEqual((kept / CAPTURE).read_text(), "frames")
        self.assertIn("ucma_get_event", (kept / "other-end").read_text())
        self.assertFalse((self.directory / CAPTURE).exists())

    @needs_tshark
    def test_a_capture_has_to_show_both_ends_close(self) -> None:
        ours = RESPONDER[0]

        def judged(change: Callable[[Session], object]) -> str:
            session = Session(False)
            session.write_file()
            change(session)
            capture = self.directory / CAPTURE
            session.write(capture)
            return judge(
                rig(NoEnd("198.18.0.1"), self.directory, ours), capture, 1, crc=True, opcodes=frozenset()
            )

        def reset(session: Session) -> None:
            end = session.responder
            session.frames.append(
                ethernet_frame(end.address, end.peer, end.sequence + end.sent + 1, RST, b"")
            )

        self.assertEqual(judged(lambda _: None), "tshark: 60 FPDUs")
        for fault, change in [
            ("no FIN from .*198.18.0.2", lambda session: session.frames.pop()),
            ("no FIN from .*198.18.0.1", lambda session: session.frames.pop(-2)),
            ("RST from our end", reset),
        ]:
            with self.assertRaisesRegex(RigError, fault):
                judged(change)


if __name__ == "__main__":
    unittest.main()
