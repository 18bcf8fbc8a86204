/*
 * Mapped files: files mapped as PHP strings, kept between requests.
 *
 * The arena is reserved once and cut into slots of one size; slot i is mapped file i, or free:
 *
 *   | header                 | contents: the file, MAP_PRIVATE, read-only  | tail | PROT_NONE ... |
 *   |  ... zend_string(24) ->| mapped and guarded by the worker            |  \0  |               |
 *
 * The header has the size of the largest page, of which only the kernel's page before the contents
 * is ever mapped.
 * The kernel zero-fills the rest of the file's last page, which provides the NUL that PHP expects;
 * only a file of whole pages needs the tail page. The header must be writable: PHP stores a
 * string's hash and class cache there. It is reset after each request that used it, because these
 * values are stale then.
 *
 * A mapped file is found by its inode: one stat(2) per read tells whether the path still names it.
 * The lease guarantees that the mapping still equals the file (sendoff_file_use()). A mapped file
 * that this request has used keeps its address until the request ends, even if its file changes,
 * because a script may hold the string.
 */
#include "lazy.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Every mapped file costs a descriptor (of 1024 by default) and up to five VMAs (of 65530). */
#define MAPPED_FILES 128
/* Bounds the slot. memory_limit refuses larger files anyway. */
#define MAPPED_FILE_MAX ((size_t)1 << 30)
/* The largest page of Linux: 4 KiB on x86-64; 4, 16 or 64 KiB on arm64. */
#define PAGE_MAX ((size_t)65536)
#define CONTENTS_AT PAGE_MAX
/* Header, contents, tail, and one page that is never mapped, so that an overrun faults. */
#define SLOT_SPAN (CONTENTS_AT + MAPPED_FILE_MAX + 2 * PAGE_MAX)
/* Bounds the page tables of a worker: 16 MiB for 8 GiB, if all pages are touched. */
#define TOTAL_MAX ((size_t)8 << 30)

/*
 * A mapped file that is not used for this time is released, so that a busy worker does not keep a
 * deleted file on the disk for longer.
 */
#define IDLE_SECONDS 60
/*
 * In worker mode, the interval of searching the memory for lazy strings that the application still
 * holds (10 ms for 60 MB), while files wait to be released.
 */
#define SEARCH_SECONDS 10
/* After a path led to no mapped file, it is not looked up again for this time. */
#define HOPELESS_SECONDS 2
#define HOPELESS_ENTRIES 256
#define SEEN_ENTRIES 256
/* The most mapped files that one request may displace. */
#define DISPLACED_MAX 16

struct mapped_file {
	dev_t dev;
	ino_t ino;
	struct timespec mtime;
	struct timespec ctime;
	/* 0: the slot is free. */
	size_t size;
	uint32_t file;
	/* In seconds of lazy_now(). */
	time_t last_use;
	bool used;
	/* The file has changed: released when the request ends. */
	bool stale;
};

typedef struct hopeless {
	zend_ulong path_hash;
	time_t until;
} hopeless;

size_t lazy_page;

static sendoff_worker *attached;
static char *arena;
static mapped_file mapped_files[MAPPED_FILES];
/* The inode of mapped file i; 0 if it is free or stale. A separate array, because every read
 * searches it. */
static uint64_t keys[MAPPED_FILES];
static size_t total;
static uint32_t used[MAPPED_FILES];
static uint32_t used_count;
static hopeless hopeless_paths[HOPELESS_ENTRIES];

/*
 * When no slot is free, a file displaces another only when it is read a second time, and only
 * between requests, so that a crawl through many files does not empty the cache. While slots are
 * free, the first read already holds the file, which costs some 10 us once.
 */
static uint32_t seen[SEEN_ENTRIES];
static uint32_t displace;
static time_t swept;

/* A hash of an inode, never 0. Two inodes may have the same hash. */
static uint64_t key_of(const struct stat *st)
{
	uint64_t key = ((uint64_t)st->st_ino + ((uint64_t)st->st_dev << 40)) * 0x9e3779b97f4a7c15u;

	return key ? key : 1;
}

static uint32_t hash_of(const struct stat *st)
{
	return (uint32_t)(key_of(st) >> 32);
}

static char *contents_of(const mapped_file *mapped)
{
	return arena + (size_t)(mapped - mapped_files) * SLOT_SPAN + CONTENTS_AT;
}

zend_result mapped_files_startup(void)
{
	lazy_page = (size_t)sysconf(_SC_PAGESIZE);
	if (lazy_page > PAGE_MAX) {
		return FAILURE;
	}
	void *reserved = mmap(NULL, MAPPED_FILES * SLOT_SPAN, PROT_NONE,
						  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (reserved == MAP_FAILED) {
		zend_error(E_CORE_WARNING, "sendoff: lazy strings are off: no address space: %s",
				   strerror(errno));
		return FAILURE;
	}
	arena = reserved;
	return SUCCESS;
}

sendoff_worker *lazy_attached(void)
{
	return attached;
}

sendoff_worker *lazy_worker(void)
{
	if (!arena || !SENDOFF_G(in_request)) {
		return NULL;
	}
	if (lazy_before_use) {
		lazy_before_use();
	}
	return attached && sendoff_accepts_files(attached) ? attached : NULL;
}

uint32_t mapped_file_epoch(void)
{
	return __atomic_load_n(sendoff_file_epoch(), __ATOMIC_ACQUIRE);
}

static bool same_time(const struct timespec *a, const struct timespec *b)
{
	return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* The ctime is compared too: after a chmod the worker may no longer be allowed to read the file. */
static bool same_file(const mapped_file *mapped, const struct stat *st)
{
	return mapped->size == (size_t)st->st_size && same_time(&mapped->mtime, &st->st_mtim) &&
		   same_time(&mapped->ctime, &st->st_ctim);
}

static void write_header(mapped_file *mapped)
{
	make_untouchable(mapped_file_string(mapped), mapped->size);
}

zend_string *mapped_file_string(mapped_file *mapped)
{
	return string_before(contents_of(mapped));
}

static void give_back(mapped_file *mapped)
{
	size_t size = mapped->size;

	sendoff_file_drop(attached, mapped->file);
	if (size % lazy_page == 0) {
		mmap(contents_of(mapped) + size, lazy_page, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	}
	total -= size;
	keys[mapped - mapped_files] = 0;
	memset(mapped, 0, sizeof(*mapped));
}

void mapped_files_attach(sendoff_worker *worker)
{
	for (mapped_file *mapped = mapped_files; attached && mapped < mapped_files + MAPPED_FILES;
		 mapped++) {
		if (mapped->size) {
			give_back(mapped);
		}
	}
	attached = worker;
}

/*
 * Releases a mapped file that is out of date: at once if this request has not used it, so that no
 * script can hold its string, else when the request ends.
 */
static void retire(mapped_file *mapped)
{
	if (mapped->used) {
		mapped->stale = true;
		keys[mapped - mapped_files] = 0;
	} else {
		give_back(mapped);
	}
}

static void mark_used(mapped_file *mapped)
{
	mapped->last_use = lazy_now();
	if (!mapped->used) {
		mapped->used = true;
		used[used_count++] = (uint32_t)(mapped - mapped_files);
	}
}

/* The mapped file of an inode; NULL if there is none. */
static mapped_file *kept(const struct stat *st)
{
	uint64_t key = key_of(st);

	for (uint32_t i = 0; i < MAPPED_FILES; i++) {
		if (keys[i] == key && mapped_files[i].ino == st->st_ino &&
			mapped_files[i].dev == st->st_dev) {
			return &mapped_files[i];
		}
	}
	return NULL;
}

/* Without this cache, looking up small files in vain would make reading them cost a fifth more. */
bool mapped_file_is_hopeless(zend_string *path)
{
	zend_ulong hash = zend_string_hash_val(path);
	const hopeless *entry = &hopeless_paths[hash % HOPELESS_ENTRIES];

	return entry->path_hash == hash && lazy_now() < entry->until;
}

void mapped_file_give_up(zend_string *path)
{
	zend_ulong hash = zend_string_hash_val(path);

	hopeless_paths[hash % HOPELESS_ENTRIES] = (hopeless){hash, lazy_now() + HOPELESS_SECONDS};
}

/* Counts a file that found no free slot. From its second read on, another file is displaced. */
static void wish_for(const struct stat *st)
{
	uint32_t hash = hash_of(st);

	if (seen[hash % SEEN_ENTRIES] != hash) {
		seen[hash % SEEN_ENTRIES] = hash;
	} else if (displace < DISPLACED_MAX) {
		displace++;
	}
}

/* A free slot; NULL if all are taken. */
static mapped_file *free_slot(const struct stat *st)
{
	if (total + (size_t)st->st_size <= TOTAL_MAX) {
		for (mapped_file *mapped = mapped_files; mapped < mapped_files + MAPPED_FILES; mapped++) {
			if (!mapped->size) {
				return mapped;
			}
		}
	}
	wish_for(st);
	return NULL;
}

/*
 * Makes the header writable and maps the tail page. The header stays writable after release.
 */
static bool map_surroundings(mapped_file *mapped, size_t size)
{
	char *contents = contents_of(mapped);

	if (mprotect(contents - lazy_page, lazy_page, PROT_READ | PROT_WRITE) != 0) {
		return false;
	}
	return size % lazy_page != 0 || mprotect(contents + size, lazy_page, PROT_READ) == 0;
}

static void why_not_held(void)
{
	switch (errno) {
	case EOPNOTSUPP:
		LAZY_BECAUSE("no snapshot guard: --snapshot copy");
		break;
	case EMFILE:
		LAZY_BECAUSE("too many held files");
		break;
	case EAGAIN:
		LAZY_BECAUSE("no lease: EAGAIN (a process has it open for writing)");
		break;
	case EACCES:
		LAZY_BECAUSE("no lease: EACCES (not the owner, no CAP_LEASE): give the file to the user of "
					 "the pool, or start the server as root");
		break;
	default:
		LAZY_BECAUSE_ERRNO("no lease");
	}
}

static mapped_file *hold(const char *path, const struct stat *st)
{
	size_t size = (size_t)st->st_size;
	mapped_file *mapped = free_slot(st);

	if (!mapped) {
		LAZY_BECAUSE("too many held files");
		return NULL;
	}
	int fd = lazy_open(path, st);
	if (fd < 0) {
		return NULL;
	}
	if (!map_surroundings(mapped, size)) {
		close(fd);
		return NULL;
	}
	uint32_t file;
	if (sendoff_file_hold(attached, fd, contents_of(mapped), size, &st->st_mtim, &st->st_ctim,
						  &file) != 0) {
		if (errno == EMFILE) {
			wish_for(st);
		}
		why_not_held();
		return NULL;
	}
	*mapped = (mapped_file){
		.dev = st->st_dev,
		.ino = st->st_ino,
		.mtime = st->st_mtim,
		.ctime = st->st_ctim,
		.size = size,
		.file = file,
	};
	keys[mapped - mapped_files] = key_of(st);
	total += size;
	write_header(mapped);
	return mapped;
}

mapped_file *mapped_file_open(const char *path)
{
	struct stat st;

	/* A [HOST=] or [PATH=] section of php.ini can set the threshold to 0. */
	if (SENDOFF_G(threshold) == 0) {
		LAZY_BECAUSE("lazy strings are off (sendoff.threshold=0)");
		return NULL;
	}
	if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) {
		LAZY_BECAUSE("not a regular file");
		return NULL;
	}
	if (st.st_size < SENDOFF_G(threshold) || (size_t)st.st_size > MAPPED_FILE_MAX) {
		LAZY_BECAUSE(st.st_size < SENDOFF_G(threshold) ? "smaller than sendoff.threshold"
													   : "larger than 1 GiB");
		return NULL;
	}
	mapped_file *mapped = kept(&st);
	if (mapped && !same_file(mapped, &st)) {
		retire(mapped);
		mapped = NULL;
	}
	if (mapped && sendoff_file_use(attached, mapped->file) != 1) {
		bool in_use = mapped->used;
		retire(mapped);
		if (in_use) {
			/* This request reads and writes the file, perhaps alternately: a private copy per read
			 * costs more than it saves. */
			LAZY_BECAUSE("read and then changed in this request");
			return NULL;
		}
		mapped = NULL;
	}
	if (!mapped) {
		mapped = hold(path, &st);
	}
	if (mapped) {
		mark_used(mapped);
		if (UNEXPECTED(lazy_explaining)) {
			lazy_explain_given(mapped->file, (size_t)st.st_size, path);
		}
	}
	return mapped;
}

bool mapped_file_find(const char *ptr, size_t len, uint32_t *file, uint64_t *offset)
{
	uintptr_t distance = (uintptr_t)ptr - (uintptr_t)arena;

	if (!arena || distance >= MAPPED_FILES * SLOT_SPAN) {
		return false;
	}
	mapped_file *mapped = &mapped_files[distance / SLOT_SPAN];
	size_t in_slot = distance % SLOT_SPAN;
	if (in_slot < CONTENTS_AT || in_slot - CONTENTS_AT > mapped->size ||
		len > mapped->size - (in_slot - CONTENTS_AT)) {
		return false;
	}
	if (!lazy_worker() || !sendoff_file_intact(attached, mapped->file)) {
		return false;
	}
	*file = mapped->file;
	*offset = in_slot - CONTENTS_AT;
	return true;
}

const char *mapped_file_end(const char *in_file)
{
	const mapped_file *mapped = &mapped_files[((uintptr_t)in_file - (uintptr_t)arena) / SLOT_SPAN];

	return contents_of(mapped) + mapped->size;
}

static mapped_file *least_recently_used(void)
{
	mapped_file *oldest = NULL;

	for (mapped_file *mapped = mapped_files; mapped < mapped_files + MAPPED_FILES; mapped++) {
		if (mapped->size && (!oldest || mapped->last_use < oldest->last_use)) {
			oldest = mapped;
		}
	}
	return oldest;
}

/* Releases mapped files that are idle or have lost their lease. Runs at most once per second. */
static void sweep(void)
{
	time_t today = lazy_now();

	if (today == swept) {
		return;
	}
	swept = today;
	for (mapped_file *mapped = mapped_files; mapped < mapped_files + MAPPED_FILES; mapped++) {
		if (mapped->size && (today - mapped->last_use > IDLE_SECONDS ||
							 !sendoff_file_intact(attached, mapped->file))) {
			give_back(mapped);
		}
	}
}

static bool is_idle(const mapped_file *mapped)
{
	return mapped->stale || !sendoff_file_intact(attached, mapped->file) ||
		   lazy_now() - mapped->last_use > IDLE_SECONDS;
}

static bool any_idle(void)
{
	for (mapped_file *mapped = mapped_files; mapped < mapped_files + MAPPED_FILES; mapped++) {
		if (mapped->size && is_idle(mapped)) {
			return true;
		}
	}
	return false;
}

/* Lists the files in use again, after some have been released. */
static void list_used(void)
{
	used_count = 0;
	for (uint32_t i = 0; i < MAPPED_FILES; i++) {
		if (mapped_files[i].used) {
			used[used_count++] = i;
		}
	}
}

/*
 * Worker mode: a variable of the application may hold any string that a request has got, so all
 * files stay in use. A file is released only if no string of it is found in memory.
 */
static void release_unheld(void)
{
	bool held[MAPPED_FILES] = {false};
	time_t today = lazy_now();

	if (today - swept < SEARCH_SECONDS || (!displace && !any_idle())) {
		return;
	}
	swept = today;
	if (!lazy_held((const char *)mapped_file_string(&mapped_files[0]), SLOT_SPAN, MAPPED_FILES,
				   held)) {
		return;
	}
	for (uint32_t i = 0; i < MAPPED_FILES; i++) {
		mapped_file *mapped = &mapped_files[i];

		if (mapped->size && !held[i] && (displace || is_idle(mapped))) {
			displace -= displace && !is_idle(mapped);
			give_back(mapped);
		}
	}
	list_used();
	displace = 0;
}

bool mapped_files_end_request(void)
{
	if (!arena || !attached) {
		return false;
	}
	if (lazy_outlives_requests) {
		release_unheld();
		return true;
	}
	for (uint32_t i = 0; i < used_count; i++) {
		mapped_file *mapped = &mapped_files[used[i]];

		mapped->used = false;
		if (mapped->stale || !sendoff_file_intact(attached, mapped->file)) {
			give_back(mapped);
		} else {
			write_header(mapped);
		}
	}
	if (used_count) {
		sendoff_files_unuse(attached);
		used_count = 0;
	}
	for (; displace > 0; displace--) {
		mapped_file *mapped = least_recently_used();
		if (mapped) {
			give_back(mapped);
		}
	}
	sweep();
	return true;
}
