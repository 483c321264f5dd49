# shellcheck shell=bash
# Functions that the scripts share. To be sourced.

# Where this file is, whatever folder a script goes to.
scripts_folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# usage STATUS: prints the comment at the head of the script, and ends the script.
usage() {
    awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$scripts_folder/$(basename "$0")"
    exit "$1"
}

# The kernel's pool of 2 MB pages.
hugepage_directory=/sys/kernel/mm/hugepages/hugepages-2048kB

# Whether commands can be run as root without asking for a password.
can_be_root() {
    [[ $EUID -eq 0 ]] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }
}

# Runs a command as root. Only after can_be_root.
as_root() {
    if [[ $EUID -eq 0 ]]; then
        "$@"
    else
        sudo -n "$@"
    fi
}

# Prints one number of the hugepage pool (nr_hugepages, free_hugepages), 0 where the kernel has none.
hugepages() {
    local file="$hugepage_directory/$1"
    if [[ -r $file ]]; then
        cat "$file"
    else
        echo 0
    fi
}

# Leaves with one clear line unless cargo is there, looking where rustup puts it as well.
need_cargo() {
    if ! command -v cargo >/dev/null && [[ -x ${CARGO_HOME:-${HOME:-/root}/.cargo}/bin/cargo ]]; then
        PATH="${CARGO_HOME:-${HOME:-/root}/.cargo}/bin:$PATH"
    fi
    if ! command -v cargo >/dev/null; then
        echo "cargo is not on PATH: install a Rust toolchain, see https://rustup.rs" >&2
        exit 1
    fi
}

# Prints cargo's target directory, an absolute path. Only after need_cargo.
target_directory() {
    cargo metadata --format-version 1 --no-deps --offline | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
}
