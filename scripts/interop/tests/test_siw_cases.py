"""What the cases against siw take for an end of rping."""

import unittest

from rig.processes import RigError
from siw_rig.cases import require_done


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


if __name__ == "__main__":
    unittest.main()
