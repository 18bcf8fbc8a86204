/*
 * Opening what may become a mapped file: only files that this kernel guards completely.
 *
 * Every writer must come past the lease that the worker takes: that is true on file systems where
 * this kernel knows every writer, with the exceptions below.
 */
#include "lazy.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Not in linux/magic.h. */
#define ZFS_MAGIC 0x2fc12fc1ul
#define BCACHEFS_MAGIC 0xca451a4eul
/* In statfs(2), f_flags. */
#define MOUNTED_READ_ONLY 0x0001

/*
 * Whether a lease on this file says everything about who writes to it. On a shared file system
 * (NFS, FUSE) another host may change or cut the file, and the next look at it kills the
 * process.
 *
 * On overlayfs the kernel grants a lease although a process still has the file mapped for writing,
 * through a descriptor that it has closed (seen with Linux 6.18; elsewhere such a mapping counts as
 * an open file). What it stores changes the string although no lease breaks. No process does that
 * on a mount that is read-only.
 */
static bool is_guarded_by_leases(int fd)
{
	struct statfs fs;

	if (fstatfs(fd, &fs) != 0) {
		return false;
	}
	switch ((unsigned long)fs.f_type) {
	case EXT4_SUPER_MAGIC:
	case XFS_SUPER_MAGIC:
	case BTRFS_SUPER_MAGIC:
	case F2FS_SUPER_MAGIC:
	case TMPFS_MAGIC:
	case RAMFS_MAGIC:
	case SQUASHFS_MAGIC:
	case ZFS_MAGIC:
	case BCACHEFS_MAGIC:
		return true;
	case OVERLAYFS_SUPER_MAGIC:
		return SENDOFF_G(overlayfs) || (fs.f_flags & MOUNTED_READ_ONLY);
	default:
		return false;
	}
}

/*
 * (The kernel does not count who writes to a memfd, and grants a lease. But PHP opens no memfd: it
 * resolves /proc/PID/fd/N to a name that does not exist.)
 */
static bool is_the_same(int fd, const struct stat *seen)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_dev == seen->st_dev && st.st_ino == seen->st_ino;
}

int lazy_open(const char *path, const struct stat *seen)
{
	/* Not blocking: by now it may be a pipe. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	if (fd < 0) {
		LAZY_BECAUSE("cannot be opened");
		return -1;
	}
	if (!is_the_same(fd, seen)) {
		LAZY_BECAUSE("it was replaced just now");
	} else if (!is_guarded_by_leases(fd)) {
		LAZY_BECAUSE("on a file system where leases guard nothing (network, FUSE, overlayfs)");
	} else {
		return fd;
	}
	close(fd);
	return -1;
}
