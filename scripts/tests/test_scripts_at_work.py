"""Tests of shell scripts in a folder of their own, with stubs in the place of what they call: what a signal
ends, and what a failure does."""

import contextlib
import os
import pathlib
import pty
import select
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from collections.abc import Callable
from typing import Self

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent
SECONDS = 30
"""How long something may take that takes a moment, on a machine that has other work."""
HELD_SECONDS = 3 * SECONDS
"""How long a stub runs that nobody ends."""
# A program that starts another, as cargo does, and ends on SIGTERM without it.
HOLD = f"""sleep {HELD_SECONDS} &
echo held >>"$MARK/held"
wait
"""
CARGO = """case $* in
    --version) echo 'cargo 99.0.0' ;;
    metadata*) echo "{\\"target_directory\\":\\"$MARK/target\\"}" ;;
    *--no-run* | *build* | *--version) ;;
    *test*) . "$MARK/hold" ;;
esac
"""


def until(condition: Callable[[], bool], seconds: float = SECONDS) -> bool:
    """Whether a condition comes true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


class Folder:
    """Copies of scripts, and stubs; a context manager that leaves no process behind."""

    def __init__(self, *scripts: str) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="warpline-scripts-")
        self.path = pathlib.Path(self._directory.name).resolve()
        self.started: dict[int, int] = {}
        for name in ("common.sh", *scripts):
            (self.path / "scripts").mkdir(exist_ok=True)
            shutil.copy(SCRIPTS / name, self.path / "scripts" / name)
        shutil.copy(SCRIPTS.parent / "Cargo.toml", self.path)
        (self.path / "hold").write_text(HOLD)
        self.stub("bin/cargo", CARGO)
        # As root and otherwise: nothing here is another user's.
        self.stub("bin/sudo", 'shift\nexec "$@"')
        self.environment = {
            **os.environ,
            "PATH": f"{self.path}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "MARK": str(self.path),
        }
        self.environment.pop("CARGO_TARGET_DIR", None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid, terminal in self.started.items():
            os.close(terminal)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self._directory.cleanup()

    def stub(self, name: str, text: str) -> None:
        """A program of sh."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def left(self) -> list[int]:
        """The processes that were started here, at whatever remove, and still run."""
        mark, found = f"MARK={self.path}".encode(), []
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
        return found

    def held(self) -> int:
        """How many stubs have begun to run until they are ended."""
        held = self.path / "held"
        return len(held.read_text().split()) if held.exists() else 0

    def start(self, *words: str) -> int:
        """Starts a script of the folder at a terminal of its own; its process."""
        process, terminal = pty.fork()
        if process == 0:
            try:
                os.chdir(self.path)
                os.execve(words[0], words, self.environment)
            finally:
                os._exit(127)
        self.started[process] = terminal
        return process

    def press_ctrl_c(self, process: int) -> None:
        """As somebody at the terminal does."""
        os.write(self.started[process], b"\x03")

    def end(self, process: int) -> tuple[int | None, str]:
        """The exit status of a script, None if it does not end, and what it has printed."""
        printed, status = b"", list[int]()

        def ended() -> bool:
            nonlocal printed
            with contextlib.suppress(OSError):  # nobody has the terminal open any more
                while select.select([self.started[process]], [], [], 0)[0]:
                    printed += os.read(self.started[process], 65536)
            if not status:
                found, how = os.waitpid(process, os.WNOHANG)
                status.extend([os.waitstatus_to_exitcode(how)] if found else [])
            return bool(status)

        until(ended)
        ended()
        return (status[0] if status else None), printed.decode(errors="replace")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a script of the folder to its end."""
        return subprocess.run(
            words,
            cwd=self.path,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HELD_SECONDS,
            check=False,
        )


class SignalTest(unittest.TestCase):
    def expect_ends(self, folder: Folder, number: signal.Signals, *words: str, steps: int = 1) -> str:
        """A script that is sent a signal while some steps run ends with its status, and so do they; what it
        has printed. SIGINT comes from the terminal."""
        process = folder.start(*words)
        if not until(lambda: folder.held() >= steps):
            self.fail(f"{words[0]} does not come to its steps: {folder.end(process)}")
        if number == signal.SIGINT:
            folder.press_ctrl_c(process)
        else:
            os.kill(process, number)
        status, printed = folder.end(process)
        self.assertEqual(status, 128 + number, printed)
        self.assertTrue(until(lambda: not folder.left()), folder.left())
        self.assertEqual(folder.held(), steps, "nothing is begun after the signal")
        return printed


class BoundedTest(SignalTest):
    def test_the_command_and_what_it_has_started_end_with_the_shell(self) -> None:
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            with self.subTest(number.name), Folder() as folder:
                script = '. scripts/common.sh; bounded 60 sh "$MARK/hold"; echo went on'
                printed = self.expect_ends(folder, number, "/bin/bash", "-c", script)
                self.assertNotIn("went on", printed)

    def test_the_status_is_that_of_timeout(self) -> None:
        with Folder() as folder:
            for command, status in (("60 true", 0), ("60 sh -c 'exit 7'", 7), ("0.1 sleep 60", 124)):
                done = folder.run("/bin/bash", "-c", f". scripts/common.sh; bounded {command}")
                self.assertEqual((done.returncode, done.stdout + done.stderr), (status, ""), command)


class SoakTest(SignalTest):
    def test_ctrl_c_ends_it(self) -> None:
        with Folder("soak") as folder:
            self.expect_ends(folder, signal.SIGINT, "scripts/soak")


class TestTest(SignalTest):
    def folder(self) -> Folder:
        """With the checks that are no cargo commands, and a setup that runs until it is ended."""
        folder = Folder("test")
        folder.stub("bin/cc", "")
        folder.stub("scripts/setup", HOLD)
        for name in ("check_lines", "check_layers", "check_python"):
            folder.stub(f"scripts/{name}", "echo checked")
        return folder

    def test_ctrl_c_ends_it(self) -> None:
        with self.folder() as folder:
            printed = self.expect_ends(folder, signal.SIGINT, "scripts/test", "--quick")
            self.assertNotIn("passed", printed)

    def test_steps_beside_others_end_too(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(number.name), self.folder() as folder:
                printed = self.expect_ends(folder, number, "scripts/test", steps=2)
                self.assertNotIn("passed", printed)

    def test_what_a_step_says_at_its_end_is_kept(self) -> None:
        with self.folder() as folder:
            farewell = "trap 'sleep 0.2; echo farewell; exit 1' TERM\n"
            (folder.path / "hold").write_text(farewell + HOLD)
            printed = self.expect_ends(folder, signal.SIGTERM, "scripts/test", "--quick")
            self.assertIn("farewell", printed)

    def test_steps_are_listed_with_their_outcomes(self) -> None:
        with self.folder() as folder:
            (folder.path / "hold").write_text("echo error: it does not work; exit 7\n")
            computing = "import time\nwhile time.process_time() < 0.8: pass"
            folder.stub("scripts/check_layers", f"python3 -c '{computing}'")
            done = folder.run("scripts/test", "--quick")
            self.assertEqual((done.returncode, done.stderr), (1, ""))
            logs = folder.path / "target/test-results"
            log = logs / "vectors-and-scripted-segments.log"
            self.assertEqual(log.read_text(), "error: it does not work\n")
            self.assertIn(f"--- vectors and scripted segments\n{log.read_text()}", done.stdout)
            self.assertIn(f"\n--- from {log}\n{log.read_text()}", done.stdout)
            outcomes = (logs / "outcomes").read_text()
            self.assertRegex(outcomes, r"\nlines end at 110 columns[^\n]* [0-9]+ s +0 s CPU  passed\n")
            self.assertRegex(outcomes, r"\nimports lead down[^\n]* s +[1-9][0-9]* s CPU  passed\n")
            failed = rf"\nvectors and scripted segments +[0-9]+ s +0 s CPU  FAILED \(status 7\), see {log}\n"
            self.assertRegex(outcomes, failed)
            self.assertEqual([path for path in logs.iterdir() if path.suffix not in ("", ".log")], [])
            self.assertTrue(done.stdout.endswith(f"{outcomes}5 passed, 4 failed\n"), done.stdout)


class SanitizeTest(SignalTest):
    def test_ctrl_c_ends_it(self) -> None:
        with Folder("sanitize") as folder:
            folder.stub("bin/rustc", "echo host: here")
            self.expect_ends(folder, signal.SIGINT, "scripts/sanitize", "address")


class FuzzTest(SignalTest):
    def test_ctrl_c_is_no_finding(self) -> None:
        """A fuzzer ends on SIGINT with a status of its own, after its jobs."""
        with Folder("fuzz") as folder:
            folder.stub("bin/rustc", "echo host: here")
            folder.stub("fuzz/target/here/release/seeds", "")
            folder.stub("fuzz/target/here/release/receive", f"trap 'exit 72' INT TERM\n{HOLD}")
            printed = self.expect_ends(folder, signal.SIGINT, "scripts/fuzz", "--target", "receive")
            self.assertNotIn("finding", printed)

    def test_its_jobs_end_with_it(self) -> None:
        with Folder("fuzz") as folder:
            folder.stub("bin/rustc", "echo host: here")
            folder.stub("fuzz/target/here/release/seeds", "")
            folder.stub("fuzz/target/here/release/receive", HOLD)
            self.expect_ends(folder, signal.SIGTERM, "scripts/fuzz", "--target", "receive")


class CheckPythonTest(SignalTest):
    def test_ctrl_c_ends_the_installation(self) -> None:
        with Folder("check_python", "python-tools.txt") as folder:
            folder.stub("pip", HOLD)
            folder.stub("bin/python3", 'mkdir -p "$3/bin" && cp "$MARK/pip" "$3/bin"')
            printed = self.expect_ends(folder, signal.SIGINT, "scripts/check_python", "--install")
            self.assertNotIn("cannot be installed", printed)


class DemoTest(SignalTest):
    def folder(self, client: str) -> Folder:
        """With servers that run until they are ended, and listen by then."""
        folder = Folder("demo")
        for name in ("target/release/warpline-bench", "scripts/setup", "scripts/bench"):
            folder.stub(name, "")
        (folder.path / "scripts/demo_report.py").touch()
        # The link is up at the second look.
        state = 'cat "$MARK/state" 2>/dev/null; echo "state UP" >"$MARK/state"'
        folder.stub(
            "bin/ip", f'case $*,$1,$2 in *"link show"*) {state} ;; *,netns,exec) shift 3; exec "$@" ;; esac'
        )
        folder.stub("bin/ss", 'cat "$MARK/held" 2>/dev/null')
        server = f'case $* in *" -s "*) {HOLD} ;; esac'
        folder.stub("target/release/warpline-run", f"{server}\n{client}")
        return folder

    def test_ctrl_c_ends_server_and_client(self) -> None:
        with self.folder(HOLD) as folder:
            self.expect_ends(folder, signal.SIGINT, "scripts/demo", steps=2)

    def test_a_client_that_fails_ends_its_server(self) -> None:
        with self.folder("echo no route; exit 1") as folder:
            status, printed = folder.end(folder.start("scripts/demo"))
            self.assertEqual(status, 1, printed)
            self.assertIn("no route", printed)
            self.assertTrue(until(lambda: not folder.left()), folder.left())
            self.assertEqual(folder.held(), 1)

    def test_a_server_that_fails_is_no_success(self) -> None:
        with self.folder("") as folder:
            folder.stub("target/release/warpline-run", 'case $* in *" -s "*) echo no device; exit 1 ;; esac')
            status, printed = folder.end(folder.start("scripts/demo"))
            self.assertEqual(status, 1, printed)
            self.assertIn("no device", printed)


class PktgenTest(SignalTest):
    def folder(self, writer: str) -> Folder:
        """With ends that are what is said, and a flood of a million packets between two looks."""
        folder = Folder("pktgen")
        folder.stub("bin/sleep", "exec /bin/sleep 0.02")
        looks = """echo >>"$MARK/looks"
            echo "[{\\"stats64\\":{\\"rx\\":{\\"packets\\":$(wc -l <"$MARK/looks")000000}}}]" """
        folder.stub(
            "bin/ip", f'case $*,$1,$2 in *-statistics*) {looks} ;; *,netns,exec) shift 3; exec "$@" ;; esac'
        )
        folder.stub("bin/pktgen", HOLD.replace("sleep", "/bin/sleep"))
        # The end that writes has a report to write.
        folder.stub("target/release/warpline-bench", f"case $* in *--json*) {writer} ;; esac")
        return folder

    def test_ctrl_c_ends_everything(self) -> None:
        with self.folder(HOLD.replace("sleep", "/bin/sleep")) as folder:
            self.expect_ends(folder, signal.SIGINT, "scripts/pktgen")

    def test_bytes_that_arrive_wrong_fail_it(self) -> None:
        for corrupt, status in ((0, 0), (1, 1)):
            report = f'{{\\"corrupt_bytes\\": {corrupt}, \\"gbit_per_s\\": 12.3}}'
            writer = f'for last; do case $last in *.json) echo "{report}" >"$last" ;; esac; done'
            with self.subTest(corrupt), self.folder(writer) as folder:
                done = folder.run("scripts/pktgen")
                self.assertEqual(done.returncode, status, done.stdout + done.stderr)
                self.assertEqual("bytes arrived wrong" in done.stderr, corrupt > 0)
                rates = "12.30 Gb/s without the flood, 12.30 Gb/s with it"
                self.assertEqual(rates in done.stdout, corrupt == 0)


if __name__ == "__main__":
    unittest.main()
