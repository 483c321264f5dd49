//! Generates the structures and numbers of rdma-core's headers, with checks of their layout.

use std::env;
use std::panic;
use std::path::PathBuf;

const PACKAGES: &str =
    "apt-get install libibverbs-dev librdmacm-dev libclang1-14 libclang-common-14-dev (Debian 12 names)";

/// What a program and the libraries agree on: structures, numbers and functions.
const TYPES: &str = "ibv_.*|verbs_context|rdma_.*|RDMA_.*|RAI_.*|sockaddr.*";
const FUNCTIONS: &str = "_?ibv_.*|rdma_.*|mbps_to_ibv_rate|mult_to_ibv_rate";
const CONSTANTS: &str = "IBV_.*|RDMA_.*|RAI_.*";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/abi.h");
    if let Err(reason) = build() {
        println!("cargo::error={reason}");
    }
}

fn build() -> Result<(), String> {
    // bindgen panics when libclang is missing; the backtrace would bury what to do.
    panic::set_hook(Box::new(|_| {}));
    let libclang = panic::catch_unwind(bindgen::clang_version);
    drop(panic::take_hook());
    if libclang.is_err() {
        return Err(format!("libclang was not found; install it: {PACKAGES}"));
    }
    let bindings = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?).join("abi.rs");
    bindgen::Builder::default()
        .header("src/abi.h")
        .allowlist_type(TYPES)
        .allowlist_var(CONSTANTS)
        .allowlist_function(FUNCTIONS)
        .default_enum_style(bindgen::EnumVariation::Consts)
        .prepend_enum_name(false)
        .derive_debug(false)
        .derive_default(false)
        .generate_comments(false)
        .layout_tests(true)
        .use_core()
        .generate()
        .map_err(|error| {
            let error = error.to_string();
            let error = error.split_whitespace().collect::<Vec<_>>().join(" ");
            format!("bindgen: {error}; needed: {PACKAGES}")
        })?
        .write_to_file(bindings)
        .map_err(|error| format!("the bindings cannot be written: {error}"))
}
