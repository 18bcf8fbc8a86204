/*
 * Files as response bodies. A sender (sendoff_send_file()) serves one request at a time and keeps
 * the files that it holds, so a process has one sender for each file that it sends at the same
 * time.
 */
#include "native.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* Maximum number of files that a sender holds; each costs a descriptor, a lease and a mapping. */
#define HELD_FILES 64

typedef struct idle_sender {
	sendoff_sender *sender;
	struct idle_sender *next;
} idle_sender;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Senders without a request, the most recently used one first. */
static idle_sender *idle;
/* The process that created them. A child starts without any. */
static unsigned owner;
static unsigned fork_count;

unsigned forks(void)
{
	return fork_count;
}

static void count_fork(void)
{
	fork_count++;
}

void count_forks(void)
{
	pthread_atfork(NULL, NULL, count_fork);
}

/* The most recently used sender, or a new one; NULL without memory. */
static idle_sender *take(void)
{
	pthread_mutex_lock(&lock);
	if (owner != fork_count) {
		owner = fork_count;
		idle = NULL;
	}
	idle_sender *taken = idle;

	if (taken) {
		idle = taken->next;
	}
	pthread_mutex_unlock(&lock);
	if (!taken && (taken = malloc(sizeof(*taken))) != NULL) {
		taken->sender = sendoff_sender_new(HELD_FILES);
	}
	return taken;
}

static void put_back(idle_sender *sender)
{
	pthread_mutex_lock(&lock);
	sender->next = idle;
	idle = sender;
	pthread_mutex_unlock(&lock);
}

/*
 * True if the part lies in a file with this metadata. The contents of files in procfs and sysfs are
 * made while they are read: such files have a wrong size, and no blocks. (For a body that names a
 * file by its path the application is responsible.)
 */
static bool has(const struct stat *st, const file_part *part)
{
	return S_ISREG(st->st_mode) && (part->fd < 0 || st->st_blocks > 0) &&
		   (part->size < 0 || st->st_size == part->size) && part->start >= 0 &&
		   part->start <= st->st_size && part->len <= st->st_size - part->start;
}

/*
 * Opens the file for reading; -1 if that is impossible. An open file is opened anew, through its
 * descriptor: it may have another name by now, or none, and a lease belongs to all descriptors of
 * one open(2), so the application's own would keep a lease that has been given up.
 */
static int open_part(const file_part *part)
{
	/* O_NONBLOCK: open(2) of a FIFO would block. */
	int flags = O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
	char name[sizeof("/proc/self/fd/") + 3 * sizeof(int)];
	struct stat st;

	if (part->fd < 0) {
		return open(part->path, flags);
	}
	/* To open a device may have an effect. */
	if (fstat(part->fd, &st) != 0 || !S_ISREG(st.st_mode)) {
		return -1;
	}
	snprintf(name, sizeof(name), "/proc/self/fd/%d", part->fd);
	return open(name, flags);
}

file_result send_file(sendoff_worker *worker, const char *head, size_t head_len,
					  const file_part *part)
{
	struct stat st;
	file_result result = FILE_REFUSED;
	int fd = open_part(part);

	if (fd < 0) {
		return FILE_REFUSED;
	}
	idle_sender *sender = NULL;

	if (fstat(fd, &st) == 0 && has(&st, part)) {
		sender = take();
	}
	if (sender) {
		off_t len = part->len < 0 ? st.st_size - part->start : part->len;
		int sent = sendoff_send_file(worker, sender->sender, head, head_len, fd,
									 (uint64_t)part->start, (uint64_t)len);

		result = sent < 0 ? FILE_FAILED : sent == 0 ? FILE_COPIED : FILE_HANDED_OVER;
		put_back(sender);
	}
	close(fd);
	return result;
}
