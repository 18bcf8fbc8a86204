//! File systems on which a lease guards a file.

use std::os::fd::BorrowedFd;

use rustix::fs::{fstat, fstatfs};

/// File systems on which this kernel sees every writer, by `f_type` of `statfs(2)`: ext4, XFS,
/// Btrfs, F2FS, tmpfs, ramfs, squashfs, ZFS, bcachefs. On a shared file system (NFS, FUSE) another
/// host may change a file, and on overlayfs a lease does not detect writable mappings
/// (`docs/snapshot.md`).
const GUARDED: [u32; 9] = [
    0xef53,
    0x5846_5342,
    0x9123_683e,
    0xf2f5_2010,
    0x0102_1994,
    0x8584_58f6,
    0x7371_7368,
    0x2fc1_2fc1,
    0xca45_1a4e,
];

/// True if a lease on this file detects every process that writes to it. A file without a name may
/// be a memory file, for which the kernel grants leases without counting writers.
pub(crate) fn is_guarded_by_leases(file: BorrowedFd<'_>) -> bool {
    // The type is a 32-bit number, which some architectures sign-extend.
    let low_half = |kind: i64| u32::try_from(kind & 0xffff_ffff).unwrap_or_default();
    fstatfs(file).is_ok_and(|system| GUARDED.contains(&low_half(system.f_type)))
        && fstat(file).is_ok_and(|stat| stat.st_nlink > 0)
}
