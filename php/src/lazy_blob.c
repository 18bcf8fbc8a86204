/*
 * Blobs: long constant strings of the application, i.e. inline HTML, included files without code,
 * and long literals. The worker stores such a string once in a sealed memory file and sends its
 * descriptor to the front; afterwards it sends only the blob's id.
 *
 * With opcache these strings lie in shared memory, at the same address in every request, with the
 * header of an interned string before each. Address and header identify a candidate only: after
 * opcache restarts, other text may lie there, and extensions are not notified. Therefore each write
 * compares the string with the blob (64 KiB: 1 us from the CPU cache); only this comparison
 * decides. Without opcache each request has its own copies of the strings, and they are written as
 * bytes.
 */
#include "lazy.h"

#include <stdio.h>

/*
 * Table of known constants: a set-associative cache, so that frequent strings are not evicted by
 * many rare ones.
 */
#define SETS 64
#define WAYS 4
/*
 * A string that is written only once must not cost a memory file. Cost of storing a string, and CPU
 * time saved by each later write:
 *
 *        size   store us   saved us of us
 *      16 KiB         28        4 of  66
 *      32 KiB         35       10 of  73
 *      64 KiB         50       35 of 105
 *     128 KiB         80       40 of 120
 *     512 KiB          -      250 of 390
 *
 * Below 16 KiB, the default of sendoff.threshold, nearly nothing is saved.
 */
#define STORE_AT 2
/*
 * When all blobs are in use, a string must be written this often before it replaces the least
 * recently used blob.
 */
#define DISPLACE_AT 16
/* A string not written for this time is dropped: its script was changed or is not requested. */
#define IDLE_SECONDS 60
/* After the kernel has refused a memory file, no string is stored for this time. */
#define REFUSED_SECONDS 2
/* Bound on the shared mappings that are remembered. opcache creates one, APCu another. */
#define SHARED_MAPPINGS 16
/*
 * opcache.memory_consumption is at least 8 MiB. A smaller mapping may belong to an extension that
 * unmaps it while PHP runs.
 */
#define SHARED_MIN ((uintptr_t)8 << 20)

typedef struct constant {
	/* NULL: the entry is free. */
	const char *at;
	size_t len;
	uint32_t sightings;
	/* When the string was written last: in seconds of lazy_now(), and as a request number. */
	time_t last_use;
	uint64_t last_request;
	/* The bytes of the blob; NULL: the string is not stored, and `blob` is undefined. */
	const char *contents;
	uint32_t blob;
} constant;

static struct {
	uintptr_t start;
	uintptr_t end;
} shared[SHARED_MAPPINGS];
static size_t shared_count;

/* The blob that lazy_blob_write() writes; `at` is NULL at other times. */
static struct {
	const char *at;
	size_t len;
	uint32_t blob;
} own;

static constant constants[SETS][WAYS];
static size_t stored;
static size_t stored_bytes;
static uint64_t request = 1;
static time_t swept, refused_until;

/*
 * Joins adjacent mappings: opcache changes the protection of parts of its mapping, which splits it.
 */
static void add_shared(uintptr_t start, uintptr_t end)
{
	if (shared_count && shared[shared_count - 1].end == start) {
		shared[shared_count - 1].end = end;
	} else if (shared_count < SHARED_MAPPINGS) {
		shared[shared_count].start = start;
		shared[shared_count++].end = end;
	}
}

/* Lists the shared mappings that PHP created at startup and keeps until it ends. */
void lazy_blob_attach(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[256];
	bool whole = true;

	shared_count = 0;
	while (maps && fgets(line, sizeof(line), maps)) {
		unsigned long start, end;
		char readable, access;
		/* A path longer than `line` splits the line. The rest of it is not parsed. */
		if (whole && sscanf(line, "%lx-%lx %c%*c%*c%c", &start, &end, &readable, &access) == 4 &&
			readable == 'r' && access == 's') {
			add_shared(start, end);
		}
		whole = strchr(line, '\n') != NULL;
	}
	if (maps) {
		fclose(maps);
	}
}

static bool is_shared(const char *start, const char *end)
{
	for (size_t i = 0; i < shared_count; i++) {
		if ((uintptr_t)start >= shared[i].start && (uintptr_t)end <= shared[i].end) {
			return shared[i].end - shared[i].start >= SHARED_MIN;
		}
	}
	return false;
}

bool lazy_blob_is_own(const char *str, size_t len)
{
	return str == own.at && len == own.len;
}

bool lazy_blob_is_constant(const char *str, size_t len)
{
	const zend_string *string = string_before(str);

	if (lazy_blob_is_own(str, len)) {
		return true;
	}
	return SENDOFF_G(threshold) > 0 && len >= (size_t)SENDOFF_G(threshold) &&
		   (uintptr_t)string % sizeof(zend_ulong) == 0 && lazy_worker() &&
		   is_shared((const char *)string, str + len) && ZSTR_LEN(string) == len &&
		   is_kept_by_engine(string);
}

static constant *set_of(const char *at)
{
	uint64_t hash = (uint64_t)(uintptr_t)at * 0x9e3779b97f4a7c15u;

	return constants[(hash >> 32) % SETS];
}

/*
 * The entry of a constant. A constant not seen before replaces the least written entry of its set
 * that has no blob; NULL if all have one.
 */
static constant *entry_of(const char *at, size_t len)
{
	constant *set = set_of(at), *least = NULL;

	for (constant *one = set; one < set + WAYS; one++) {
		if (one->at == at && one->len == len) {
			return one;
		}
		if (!one->contents && (!least || one->sightings < least->sightings)) {
			least = one;
		}
	}
	if (least) {
		*least = (constant){.at = at, .len = len};
	}
	return least;
}

static bool has_room(size_t len)
{
	return stored < SENDOFF_BLOBS && stored_bytes + len <= SENDOFF_BLOB_BYTES;
}

const char *lazy_blob_keep(const char *bytes, size_t len, uint32_t *blob)
{
	const void *contents;

	if (SENDOFF_G(threshold) <= 0 || len < (size_t)SENDOFF_G(threshold) || !lazy_worker() ||
		lazy_now() < refused_until || !has_room(len)) {
		return NULL;
	}
	if (sendoff_blob_store(lazy_worker(), bytes, len, blob, &contents) != 0) {
		refused_until = lazy_now() + REFUSED_SECONDS;
		return NULL;
	}
	stored++;
	stored_bytes += len;
	return contents;
}

void lazy_blob_give_up(uint32_t blob, size_t len)
{
	stored--;
	stored_bytes -= len;
	sendoff_blob_drop(lazy_attached(), blob);
}

static void forget(constant *entry)
{
	if (entry->contents) {
		lazy_blob_give_up(entry->blob, entry->len);
	}
	memset(entry, 0, sizeof(*entry));
}

void lazy_blob_detach(void)
{
	for (constant *one = constants[0]; lazy_attached() && one < constants[0] + SETS * WAYS; one++) {
		forget(one);
	}
}

/* The least recently used stored constant; NULL if this request has used all of them. */
static constant *least_recently_used(void)
{
	constant *oldest = NULL;

	for (constant *one = constants[0]; one < constants[0] + SETS * WAYS; one++) {
		if (one->contents && one->last_request != request &&
			(!oldest || one->last_request < oldest->last_request)) {
			oldest = one;
		}
	}
	return oldest;
}

static bool make_room(const constant *entry)
{
	if (entry->len > SENDOFF_BLOB_BYTES) {
		return false;
	}
	while (!has_room(entry->len)) {
		constant *oldest = entry->sightings < DISPLACE_AT ? NULL : least_recently_used();
		if (!oldest) {
			return false;
		}
		forget(oldest);
	}
	return true;
}

static bool store(constant *entry)
{
	if (entry->sightings < STORE_AT || lazy_now() < refused_until || !make_room(entry)) {
		return false;
	}
	entry->contents = lazy_blob_keep(entry->at, entry->len, &entry->blob);
	return entry->contents != NULL;
}

void lazy_blob_write(const char *contents, size_t len, uint32_t blob)
{
	own.at = contents;
	own.len = len;
	own.blob = blob;
	zend_write(contents, len);
	own.at = NULL;
}

bool lazy_blob_find(const char *str, size_t len, uint32_t *blob)
{
	if (lazy_blob_is_own(str, len)) {
		*blob = own.blob;
		return true;
	}
	if (!lazy_blob_is_constant(str, len)) {
		return false;
	}
	constant *entry = entry_of(str, len);
	if (!entry) {
		return false;
	}
	entry->sightings++;
	entry->last_use = lazy_now();
	entry->last_request = request;
	if (!entry->contents && !store(entry)) {
		return false;
	}
	if (memcmp(entry->contents, str, len) != 0) {
		/* opcache has restarted, and another string has this address now. */
		forget(entry);
		return false;
	}
	*blob = entry->blob;
	return true;
}

void lazy_blob_end_request(void)
{
	time_t today = lazy_now();

	/* A write that ended the script by a long jump has left it. */
	own.at = NULL;
	request++;
	if (today == swept) {
		return;
	}
	swept = today;
	for (constant *one = constants[0]; one < constants[0] + SETS * WAYS; one++) {
		if (one->at && today - one->last_use > IDLE_SECONDS) {
			forget(one);
		}
	}
}
