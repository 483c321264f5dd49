//! The header says what the library has.

use std::path::Path;

/// In the order in which a reader wants them.
const SOURCES: [&str; 20] = [
    "version",
    "error",
    "device",
    "memory",
    "window",
    "advertisement",
    "completion",
    "queue_pair",
    "work",
    "connection",
    "cm/channel",
    "cm/id",
    "stream",
    "byte_stream",
    "byte_stream/reader",
    "byte_stream/writer",
    "pointer",
    "address",
    "event",
    "statistics",
];

/// The version that a program is compiled with, for the preprocessor too.
fn version() -> String {
    let numbers = [
        ("MAJOR", env!("CARGO_PKG_VERSION_MAJOR")),
        ("MINOR", env!("CARGO_PKG_VERSION_MINOR")),
        ("PATCH", env!("CARGO_PKG_VERSION_PATCH")),
    ];
    let numbers = numbers.map(|(part, number)| format!("#define WARPLINE_VERSION_{part} {number}"));
    let version = format!("#define WARPLINE_VERSION \"{}\"", env!("CARGO_PKG_VERSION"));
    format!("\n/** The version of this header: see `warpline_version`. */\n{version}\n{}", numbers.join("\n"))
}

/// With `WARPLINE_HEADER=write` the header is made anew.
#[test]
fn the_header_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    config.after_includes = Some(version());
    let mut builder = cbindgen::Builder::new().with_config(config);
    for source in SOURCES {
        builder = builder.with_src(root.join(format!("src/{source}.rs")));
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let path = root.join("include/warpline.h");
    if std::env::var_os("WARPLINE_HEADER").is_some_and(|wish| wish == "write") {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read(&path).unwrap_or_default();
    assert!(kept == made, "make it anew: WARPLINE_HEADER=write cargo test --package warpline-c header");
}
