//! Which device: `WARPLINE_DEVICE`, or else the one that `/etc/warpline.conf` names.

use std::fs;

use warpline::{DEVICE_VARIABLE, DeviceName};

/// The file that names the device of a machine, in a line `device = NAME`; `#` begins a comment.
pub const CONFIG_FILE: &str = "/etc/warpline.conf";

/// Returns the device that is configured; `None` if none is.
///
/// # Errors
///
/// What is wrong with its name, and where that comes from.
pub fn device() -> Result<Option<DeviceName>, String> {
    let named = |source: &str, name: &str| {
        name.parse().map(Some).map_err(|error| format!("{source} names no device: {error}"))
    };
    match DeviceName::from_environment() {
        Ok(Some(name)) => return Ok(Some(name)),
        Ok(None) => {}
        Err(error) => return Err(format!("{DEVICE_VARIABLE} names no device: {error}")),
    }
    match fs::read_to_string(CONFIG_FILE) {
        Ok(text) => device_line(&text).map_or(Ok(None), |name| named(CONFIG_FILE, name)),
        Err(_) => Ok(None),
    }
}

/// Returns what stands after `device =` in the first line that has it.
fn device_line(text: &str) -> Option<&str> {
    text.lines().find_map(|line| {
        let line = line.split('#').next().unwrap_or_default();
        let (key, value) = line.split_once('=')?;
        (key.trim() == "device" && !value.trim().is_empty()).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_device_line_counts() {
        for (text, expected) in [
            ("", None),
            ("# device = packet:no\n", None),
            ("device =\n", None),
            ("devices = packet:no\n", None),
            ("\n device=packet:eth0 # the wire\ndevice = packet:eth1\n", Some("packet:eth0")),
            ("device = packet:eth0,address=198.18.0.1/24\n", Some("packet:eth0,address=198.18.0.1/24")),
        ] {
            assert_eq!(device_line(text), expected, "{text:?}");
        }
    }
}
