//! The inputs of a fuzz target that the tests replay.

#[path = "archive.rs"]
mod archive;

use std::path::{Path, PathBuf};

/// An input and its name.
pub type Input = (String, Vec<u8>);

pub struct Inputs {
    /// Small inputs that together reach most of the code.
    pub seeds: Vec<Input>,
    /// Inputs that failed once.
    pub regressions: Vec<Input>,
}

/// Returns the inputs of `target`.
pub fn inputs(target: &str) -> Inputs {
    // Crates are one or two folders below the workspace.
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = crate_folder.ancestors().map(|folder| folder.join("fuzz"));
    let fuzz = folders.find(|folder| folder.join("seeds").is_dir()).expect("the folder of seeds");
    let archive = std::fs::read(fuzz.join(format!("seeds/{target}.seeds"))).unwrap();
    let seeds = archive::unpack(&archive).expect("a whole archive");
    assert!(archive::pack(seeds.clone()) == archive, "the archive of {target} is not in order");
    let seeds = seeds.into_iter().enumerate();
    let seeds = seeds.map(|(index, seed)| (format!("{target} seed {index}"), seed)).collect();
    // A target that never failed has no folder.
    let folder = fuzz.join("regressions").join(target).read_dir().into_iter().flatten();
    let mut files: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let input = |file: &PathBuf| (file.display().to_string(), std::fs::read(file).unwrap());
    Inputs { seeds, regressions: files.iter().map(input).collect() }
}
