"""CRC32c against the printed values, and the fast method against the table walk."""

from __future__ import annotations

import random
import unittest

from iwarp.crc32c import LADDER, crc32c, crc32c_bytewise, crc_field, power_of_x

from .vectors import records


class Crc32c(unittest.TestCase):
    """MPA-4.4-11."""

    def test_published_strings(self) -> None:
        """The label of each record ends in the four octets of the CRC field, in wire order."""
        for record in records("crc32c-basic"):
            wanted = bytes.fromhex(record.label.split("wire CRC = ")[1])
            with self.subTest(record.label):
                self.assertEqual(crc_field(record.octets), wanted)
                self.assertEqual(crc32c_bytewise(record.octets).to_bytes(4, "little"), wanted)

    def test_both_methods_agree_at_every_length(self) -> None:
        source = random.Random(5044)
        data = source.randbytes(3000)
        for octets in range(len(data)):
            self.assertEqual(crc32c(data[:octets]), crc32c_bytewise(data[:octets]), octets)

    def test_both_methods_agree_around_every_rung(self) -> None:
        source = random.Random(3720)
        for bits, _ in LADDER:
            for octets in range(bits // 8 - 2, bits // 8 + 3):
                data = source.randbytes(octets)
                self.assertEqual(crc32c(data), crc32c_bytewise(data), octets)

    def test_pieces_give_the_whole(self) -> None:
        source = random.Random(1)
        data = source.randbytes(200_000)
        whole = crc32c_bytewise(data)
        self.assertEqual(crc32c(data), whole)
        cut = source.randrange(len(data))
        self.assertEqual(crc32c(data[cut:], crc32c(data[:cut])), whole)

    def test_every_single_bit_error_shows(self) -> None:
        data = bytes(range(256)) * 2
        good = crc32c(data)
        for bit in range(8 * len(data)):
            bad = bytearray(data)
            bad[bit // 8] ^= 1 << bit % 8
            self.assertNotEqual(crc32c(bad), good)

    def test_powers_of_x(self) -> None:
        """x^n is the CRC register after a lone highest bit has moved n places."""
        self.assertEqual(power_of_x(0), 1 << 31)
        self.assertEqual(power_of_x(31), 1)
        self.assertEqual(power_of_x(32), 0x82F63B78)


if __name__ == "__main__":
    unittest.main()
