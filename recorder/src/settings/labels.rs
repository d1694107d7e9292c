//! Labels: the service, version, host and container of a recording.
//!
//! Detected labels come first, then those of the process's environment (OpenTelemetry's variables, then
//! `FLIGHTLINE_LABELS`), then those given to the recorder. If a name occurs several times, the last value
//! counts.

use std::{fs::File, io::Read};

use crate::{error::Error, os::process_info};

/// Name and value.
pub type Label = (String, String);

/// The environment variable: `name=value`, with commas between several.
pub const ENV: &str = "FLIGHTLINE_LABELS";
/// Limit of labels per process; further ones are dropped.
pub const MAX_LABELS: usize = 32;
/// Limits of names and values, bytes.
const MAX_TEXT: [usize; 2] = [63, 1024];
/// Limit of bytes read of a process's environment or files.
const MAX_FILE: u64 = 4 << 20;

/// Parses a label: `name=value`.
///
/// # Errors
/// A description of the problem.
pub fn parse(text: &str) -> Result<Label, String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text:?} is not NAME=VALUE"))?;
    let (name, value) = (name.trim(), value.trim());
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    if name.is_empty() || name.len() > MAX_TEXT[0] || !name.chars().all(fits) {
        return Err(format!("{name:?} is not a valid name; use at most 63 letters, digits and . _ - /"));
    }
    if value.len() > MAX_TEXT[1] || value.chars().any(|c| c.is_control() || c == ',') {
        return Err(format!("the value of {name} has more than 1024 bytes, commas or control characters"));
    }
    Ok((name.to_owned(), value.to_owned()))
}

/// Parses several labels, separated by commas.
///
/// # Errors
/// A description of the first invalid label.
pub fn parse_list(text: &str) -> Result<Vec<Label>, Error> {
    let parts = text.split(',').filter(|part| !part.trim().is_empty());
    let parsed: Result<Vec<Label>, String> = parts.map(parse).collect();
    parsed.map_err(|problem| Error::Setting { name: "label", problem })
}

/// Returns the labels of a process called `name`, and those `given` to the recorder.
pub fn process_labels(pid: u32, name: &str, given: &[Label]) -> Vec<Label> {
    let read = |what: &str| {
        let mut bytes = Vec::new();
        if let Ok(file) = File::open(format!("/proc/{pid}/{what}")) {
            let _ = file.take(MAX_FILE).read_to_end(&mut bytes);
        }
        bytes
    };
    let text = |what: &str| String::from_utf8_lossy(&read(what)).into_owned();
    let cgroup = text("cgroup");
    let mut found = Vec::new();
    if let Ok(host) = std::fs::read_to_string("/proc/sys/kernel/hostname") {
        found.push(("host".to_owned(), host.trim().to_owned()));
    }
    let service = unit(&cgroup).map(str::to_owned).or_else(|| process_info::alias(pid));
    found.push(("service".to_owned(), service.unwrap_or_else(|| name.to_owned())));
    if let Some(container) = container(&cgroup).or_else(|| container_from_mounts(&text("mountinfo"))) {
        found.push(("container".to_owned(), container));
    }
    found.extend(parse_environment(&read("environ")));
    merge(found.into_iter().chain(given.iter().cloned()))
}

/// Returns the labels of a process of which only the PID is known yet.
pub(crate) fn program_labels(pid: u32, given: &[Label]) -> Vec<Label> {
    let exe = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    process_labels(pid, &exe.file_name().unwrap_or_default().to_string_lossy(), given)
}

/// Returns the last value of each name, sorted by name.
fn merge(all: impl Iterator<Item = Label>) -> Vec<Label> {
    let map: std::collections::BTreeMap<String, String> =
        all.filter(|(_, value)| !value.is_empty()).collect();
    map.into_iter().take(MAX_LABELS).collect()
}

/// Parses the labels in a process's environment. The program controls it, so invalid labels are ignored.
fn parse_environment(environ: &[u8]) -> Vec<Label> {
    let value = |name: &str| {
        let entries = environ.split(|b| *b == 0).filter_map(|entry| std::str::from_utf8(entry).ok());
        entries.filter_map(|entry| entry.strip_prefix(name)?.strip_prefix('=')).next()
    };
    let mut found = Vec::new();
    let resources = value("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default().split(',');
    for (name, value) in resources.filter_map(|r| parse(r).ok()) {
        let name = match name.as_str() {
            "service.name" => "service",
            "service.version" => "version",
            "host.name" => "host",
            "container.id" => "container",
            _ => continue,
        };
        found.push((name.to_owned(), value));
    }
    let service = value("OTEL_SERVICE_NAME").map(|name| format!("service={name}"));
    found.extend(service.and_then(|text| parse(&text).ok()));
    found.extend(value(ENV).unwrap_or_default().split(',').filter_map(|part| parse(part).ok()));
    found
}

/// Returns the systemd unit of a process, without `.service`.
fn unit(cgroup: &str) -> Option<&str> {
    let paths = cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let mut units = paths.filter_map(|path| path.rsplit('/').find_map(|part| part.strip_suffix(".service")));
    // A user's service manager is not the service.
    units.find(|unit| !unit.starts_with("user@"))
}

/// Returns the container ID in the names of control groups: `/docker/<id>`, `cri-containerd-<id>.scope`.
fn container(cgroup: &str) -> Option<String> {
    cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2)).find_map(|path| {
        path.rsplit('/').find_map(|part| {
            let part = part.strip_suffix(".scope").unwrap_or(part);
            let id = part.rsplit('-').next().unwrap_or(part);
            is_id(id).then(|| id.to_owned())
        })
    })
}

/// Returns the container ID from the mounts, for processes in a control group namespace, whose group names
/// lack it.
fn container_from_mounts(mountinfo: &str) -> Option<String> {
    mountinfo.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        if !["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"].contains(&point) {
            return None;
        }
        root.split('/').find(|part| is_id(part)).map(str::to_owned)
    })
}

fn is_id(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn label(name: &str, value: &str) -> Label {
        (name.to_owned(), value.to_owned())
    }

    #[test]
    fn user_labels_are_parsed() {
        assert_eq!(parse("zone = eu-1"), Ok(label("zone", "eu-1")));
        assert_eq!(parse("url=a=b"), Ok(label("url", "a=b")));
        for bad in ["", "x", "=1", "a b=1", "a=\u{1}", "a=1,2"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
        assert!(parse(&format!("{}=1", "n".repeat(64))).is_err());
        assert_eq!(parse_list("a=1,,b=2").unwrap(), [label("a", "1"), label("b", "2")]);
        assert!(parse_list("a=1,b").is_err());
    }

    #[test]
    fn units_and_containers_are_read_from_proc() {
        assert_eq!(unit("0::/system.slice/nginx.service"), Some("nginx"));
        assert_eq!(unit("0::/user.slice/user-0.slice/user@0.service/app.slice/x.service"), Some("x"));
        assert_eq!(unit("0::/user.slice/user-0.slice/user@0.service/app.slice/x.scope"), None);
        assert_eq!(unit("1:name=systemd:/init.scope\n0::/"), None);
        assert_eq!(container(&format!("0::/docker/{ID}")), Some(ID.into()));
        assert_eq!(container(&format!("0::/a/cri-containerd-{ID}.scope/init")), Some(ID.into()));
        assert_eq!(container("0::/system.slice/nginx.service"), None);
        let mounts = format!(
            "1 2 8:1 /x /etc rw - ext4 /dev/sda rw\n\
             1 2 8:1 /var/lib/docker/containers/{ID}/hostname /etc/hostname rw - ext4 /dev/sda rw"
        );
        assert_eq!(container_from_mounts(&mounts), Some(ID.into()));
        assert_eq!(container_from_mounts(&format!("1 2 8:1 /{ID} /home rw - ext4 /dev/sda rw")), None);
    }

    #[test]
    fn last_value_for_a_name_wins() {
        let environ = b"OTEL_SERVICE_NAME=shop\0OTEL_RESOURCE_ATTRIBUTES=service.version=7,x=1\0A=B\0\
            FLIGHTLINE_LABELS=zone=eu,version=8,broken\0";
        let given = [label("zone", "us")];
        let all = merge(parse_environment(environ).into_iter().chain(given));
        assert_eq!(all, [label("service", "shop"), label("version", "8"), label("zone", "us")]);
        let own = process_labels(std::process::id(), "me", &[label("k", "v")]);
        for name in ["host", "service", "k"] {
            assert!(own.iter().any(|(n, value)| n == name && !value.is_empty()), "{name}: {own:?}");
        }
    }
}
