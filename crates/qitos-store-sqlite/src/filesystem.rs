//! Rule: which file systems can hold a store (STO-28).

use std::path::Path;

/// File systems without the shared memory and locks that a write-ahead log needs.
const UNSUPPORTED: [&str; 14] = [
    "9p",
    "afs",
    "ceph",
    "cifs",
    "fuse",
    "fuseblk",
    "glusterfs",
    "lustre",
    "nfs",
    "nfs4",
    "smb3",
    "smbfs",
    "vboxsf",
    "virtiofs",
];

/// The kind of the file system that holds `path`, if it is one that cannot hold a store.
///
/// Reads the mount table of Linux; elsewhere nothing is known and nothing is refused.
pub(crate) fn unsupported(path: &Path) -> Option<String> {
    let folder = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let kind = kind_of(&mounts, folder.to_str()?)?;
    is_unsupported(kind).then(|| kind.to_owned())
}

fn is_unsupported(kind: &str) -> bool {
    UNSUPPORTED.contains(&kind) || kind.starts_with("fuse.")
}

/// The type of the mount that holds `folder`: the longest mount point above it, the last of equals.
fn kind_of<'table>(mounts: &'table str, folder: &str) -> Option<&'table str> {
    let mut best: Option<(usize, &str)> = None;
    for line in mounts.lines() {
        let Some((before, after)) = line.split_once(" - ") else {
            continue;
        };
        let (Some(point), Some(kind)) = (before.split(' ').nth(4), after.split(' ').next()) else {
            continue;
        };
        let point = unescape(point);
        let holds = point == "/"
            || folder
                .strip_prefix(point.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        if holds && best.is_none_or(|(length, _)| point.len() >= length) {
            best = Some((point.len(), kind));
        }
    }
    best.map(|(_, kind)| kind)
}

/// The mount table writes space, tab, newline and backslash as three octal digits.
fn unescape(point: &str) -> String {
    point
        .replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_mount_point_decides_and_network_kinds_are_refused() {
        // STO-28
        let mounts = "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
            30 27 0:40 / /mnt/share rw shared:1 - nfs4 host:/x rw\n\
            31 27 0:41 / /mnt/with\\040space rw - fuse.sshfs x rw\n\
            nonsense\n";
        for (folder, kind, refused) in [
            ("/home/me", "ext4", false),
            ("/mnt/share", "nfs4", true),
            ("/mnt/share/deep", "nfs4", true),
            ("/mnt/shared", "ext4", false),
            ("/mnt/with space/x", "fuse.sshfs", true),
        ] {
            assert_eq!(kind_of(mounts, folder), Some(kind), "{folder}");
            assert_eq!(is_unsupported(kind), refused, "{kind}");
        }
    }
}
