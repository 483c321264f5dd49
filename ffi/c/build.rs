//! The library's name for the loader, with the version of its binary interface.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libwarpline.so.0");
}
