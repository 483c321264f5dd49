//! CRC32c in plain Rust, eight octets per step, for processors without carry-less multiplication or a CRC
//! instruction.

use super::polynomial;

/// `TABLES[k][octet]`: what `octet` contributes to the remainder once `k` zero octets have followed it.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut octet = 0;
    while octet < 256 {
        let mut remainder = octet as u32;
        let mut bit = 0;
        while bit < 8 {
            remainder = polynomial::times_x(remainder);
            bit += 1;
        }
        tables[0][octet] = remainder;
        octet += 1;
    }
    let mut distance = 1;
    while distance < 8 {
        let mut octet = 0;
        while octet < 256 {
            let nearer = tables[distance - 1][octet];
            tables[distance][octet] = nearer >> 8 ^ tables[0][(nearer & 0xff) as usize];
            octet += 1;
        }
        distance += 1;
    }
    tables
}

/// The CRC of some bytes followed by `bytes`, when `crc` is that of the former.
pub(super) fn append(crc: u32, bytes: &[u8]) -> u32 {
    let table = |distance: usize, octet: u8| TABLES[distance][usize::from(octet)];
    let mut remainder = !crc;
    let (steps, rest) = bytes.as_chunks::<8>();
    for step in steps {
        let [near, far] = [[step[0], step[1], step[2], step[3]], [step[4], step[5], step[6], step[7]]];
        let near = (u32::from_le_bytes(near) ^ remainder).to_le_bytes();
        remainder = table(7, near[0]) ^ table(6, near[1]) ^ table(5, near[2]) ^ table(4, near[3]);
        remainder ^= table(3, far[0]) ^ table(2, far[1]) ^ table(1, far[2]) ^ table(0, far[3]);
    }
    for octet in rest {
        remainder = remainder >> 8 ^ table(0, remainder as u8 ^ octet);
    }
    !remainder
}
