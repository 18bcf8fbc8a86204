/*
 * Opens a file that may become a mapped file.
 *
 * A lease guards a file only on a file system where this kernel sees every writer. The exceptions
 * are listed below.
 */
#include "lazy.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Constants that linux/magic.h lacks. */
#define ZFS_MAGIC 0x2fc12fc1ul
#define BCACHEFS_MAGIC 0xca451a4eul
/* Flag in f_flags of statfs(2). */
#define MOUNTED_READ_ONLY 0x0001

/*
 * True if a lease guards this file against every writer. On a shared file system (NFS, FUSE)
 * another host may change or truncate the file; reading the mapping then returns other bytes or
 * raises SIGBUS.
 *
 * On overlayfs the kernel grants a lease although a process still has the file mapped for writing
 * through a descriptor that it has closed (seen with Linux 6.18; on other file systems such a
 * mapping counts as an open file). A store through this mapping changes the string without a lease
 * break. On a read-only mount no such mapping exists.
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
 * True if `fd` is the inode that stat(2) saw. (A memfd would be no safe file: the kernel does not
 * count its writers, and grants a lease. But PHP cannot open one: it resolves /proc/PID/fd/N to a
 * name that does not exist.)
 */
static bool is_the_same(int fd, const struct stat *seen)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_dev == seen->st_dev && st.st_ino == seen->st_ino;
}

int lazy_open(const char *path, const struct stat *seen)
{
	/* O_NONBLOCK: the path may name a FIFO by now, and open(2) would block. */
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
