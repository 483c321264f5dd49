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

# What comes before a command that root is to run. In the background it is this, and not as_root: $! is then
# the command, or sudo, which passes signals on, and not a shell around them.
root=()
[[ $EUID -eq 0 ]] || root=(sudo -n)

# Runs a command as root. Only after can_be_root.
as_root() {
    "${root[@]}" "$@"
}

# stop PID...: ends commands that this shell has started in the background, and waits for them.
stop() {
    local process
    for process in "$@"; do
        # The number of one that has ended may be another's by now.
        if grep --quiet --line-regexp "$process" <<<"$(jobs -pr)"; then
            # sudo passes on no signal from the process group that it is in.
            kill "$process" 2>/dev/null || as_root setsid --wait kill "$process" 2>/dev/null || true
        fi
    done
    # Without a number it would wait for all.
    (($# == 0)) || wait "$@" 2>/dev/null || true
}

# end_on_signals: from here on SIGHUP, SIGINT and SIGTERM end this shell, and before it what it has started
# last in the background. A subshell has to say so itself.
end_on_signals() {
    trap 'end_by_signal 129' HUP
    trap 'end_by_signal 130' INT
    trap 'end_by_signal 143' TERM
}

end_by_signal() {
    # A second one must not cut this short, nor what is done at exit.
    trap '' HUP INT TERM
    [[ -z ${!-} ]] || stop "$!"
    exit "$1"
}

# attended COMMAND...: runs a command and waits for it; its status. Signals end both. While a command is in
# the foreground, bash answers no signal.
attended() {
    local status=0
    # Before it is started: it must not be left behind in between.
    end_on_signals
    "$@" &
    wait "$!" || status=$?
    return "$status"
}

# bounded SECONDS COMMAND...: the same for so long at most, by timeout, whose status it has. timeout makes a
# process group, which the terminal's Ctrl-C does not reach, and passes signals on to all that is in it: cargo
# ends on SIGTERM without those that it has started.
bounded() {
    local seconds=$1
    shift
    attended timeout --kill-after=10 "$seconds" "$@"
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

# The oldest Rust that compiles the workspace, as Cargo.toml names it.
needed_rust() {
    sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$scripts_folder/../Cargo.toml"
}

# Whether the cargo on PATH is as new as Cargo.toml needs. A distribution's package often is not.
cargo_suffices() {
    local version
    # As in `cargo 1.95.0 (f2d3ce0bd 2026-03-21)`.
    version=$(cargo --version 2>/dev/null | sed -n 's/^cargo \([0-9.]*\).*/\1/p')
    [[ -n $version ]] && printf '%s\n' "$(needed_rust)" "$version" | sort --check=quiet --version-sort
}

# Leaves with one clear line unless there is a cargo that is new enough, looking where rustup puts it as well.
need_cargo() {
    local rustup_bin="${CARGO_HOME:-${HOME:-/root}/.cargo}/bin"
    if ! cargo_suffices && [[ -x $rustup_bin/cargo ]]; then
        PATH="$rustup_bin:$PATH"
    fi
    if ! command -v cargo >/dev/null; then
        echo "cargo is not on PATH: install Rust $(needed_rust) or newer, see https://rustup.rs" >&2
        exit 1
    fi
    if ! cargo_suffices; then
        echo "$(cargo --version 2>&1 | head -n 1) is too old: warpline needs Rust $(needed_rust) or newer" \
            "(rustup update, see https://rustup.rs)" >&2
        exit 1
    fi
}

# Prints cargo's target directory, an absolute path. Only after need_cargo.
target_directory() {
    cargo metadata --format-version 1 --no-deps --offline | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p'
}

# Prints what the log of a failed step says of its failures, or else the log's end: for whoever sees only the
# end of what scripts/test prints.
what_failed() {
    local told
    told=$(grep --max-count=20 --after-context=8 --extended-regexp \
        '^---- .* stdout ----$|panicked at|^error(:|\[)|^(FAIL|ERROR):|^FAIL ' "$1") ||
        told=$(tail --lines=40 "$1")
    head --lines=200 <<<"$told"
}

# What every script has: its head, for who asks for help.
case ${1:-} in
    -h | --help) usage 0 ;;
esac
