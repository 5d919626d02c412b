//! What a run needs of the machine. Where something is missing it fails and says what to install: it never skips.

use std::path::Path;

/// A program, and the Debian package that has it.
const PROGRAMS: [(&str, &str); 8] = [
    ("losetup", "mount"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("btrfs", "btrfs-progs"),
    ("chattr", "e2fsprogs"),
    ("nbdkit", "nbdkit"),
    ("nbdfuse", "libnbd-bin"),
];

/// # Errors
/// Everything that is missing, in one text.
pub fn check() -> Result<(), String> {
    let mut missing = Vec::new();
    if !crate::sys::is_root() {
        missing.push("root, for loop devices and mounts: run it with sudo".to_owned());
    }
    for (device, remedy) in [
        ("/dev/loop-control", "the kernel module `loop` (modprobe loop; in a container, give it the device)"),
        ("/dev/fuse", "the kernel module `fuse` (modprobe fuse; in a container, give it the device)"),
    ] {
        if !Path::new(device).exists() {
            missing.push(format!("{device}: {remedy}"));
        }
    }
    let mut packages: Vec<&str> = Vec::new();
    for (program, package) in PROGRAMS {
        if !is_program(program) {
            missing.push(format!("the program {program}"));
            packages.push(package);
        }
    }
    packages.sort_unstable();
    packages.dedup();
    if !packages.is_empty() {
        missing.push(format!("install with: apt-get install -y {}", packages.join(" ")));
    }
    if missing.is_empty() { Ok(()) } else { Err(format!("missing: {}", missing.join("\n         "))) }
}

fn is_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}
