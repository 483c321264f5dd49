//! The seeds of a fuzz target in one file: a heading, then each seed as its length in four bytes, most
//! significant first, and its bytes. Shortest seeds come first, then in the order of their bytes, so that
//! equal seeds make equal files.

const HEADING: &[u8] = b"warpline seeds 1\n";

/// Returns the archive of `seeds`, each of them once.
pub fn pack(mut seeds: Vec<Vec<u8>>) -> Vec<u8> {
    seeds.sort_by(|one, other| (one.len(), one).cmp(&(other.len(), other)));
    seeds.dedup();
    let mut archive = HEADING.to_vec();
    for seed in seeds {
        archive.extend((seed.len() as u32).to_be_bytes());
        archive.extend(seed);
    }
    archive
}

/// Returns the seeds of `archive`, or `None` if it is damaged.
pub fn unpack(archive: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut rest = archive.strip_prefix(HEADING)?;
    let mut seeds = Vec::new();
    while let Some((len, after)) = rest.split_first_chunk() {
        let (seed, after) = after.split_at_checked(u32::from_be_bytes(*len) as usize)?;
        seeds.push(seed.to_vec());
        rest = after;
    }
    rest.is_empty().then_some(seeds)
}
