/*
 * Blobs: long constant strings, which are inline HTML, files without code that are included, and
 * long literals. The front is given one once and then only told its name.
 *
 * With opcache they lie in its shared memory at the same address in every request, each with the
 * header of an interned string before it: that is how they are recognised. It proves nothing. The
 * memory gets other contents when opcache starts afresh, which an extension is not told of, so what
 * is written is compared with the blob each time (64 KiB: 1 us from the processor's cache). Nothing
 * but that comparison decides, as in lazy_match.c. Without opcache every request has strings of its
 * own; they are written as bytes.
 */
#include "lazy.h"

#include <stdio.h>

/* Constants that are known: sets of a few entries, so that hot ones survive a crowd. */
#define SETS 64
#define WAYS 4
/*
 * A string written once should not cost a file: to store 64 KiB takes 50 us, and saves some 35 us
 * of 105 each time after that. (128 KiB: 80, and 40 of 120; 512 KiB: 250 of 390; 32 KiB: 35, and 10
 * of 73; 16 KiB: 28, and 4 of 66; below, where PHP's threshold for files lies too, about nothing.)
 */
#define STORE_AT 2
/* When there is no room a string must be worth more: it takes the place of another. */
#define DISPLACE_AT 16
/* Strings not written for this time are forgotten: their script has changed, or has no visitors. */
#define IDLE_SECONDS 60
/* After the kernel has refused a file, others are not tried for this time. */
#define REFUSED_SECONDS 2
/* opcache has one, APCu another. */
#define SHARED_MAPPINGS 16
/* opcache takes no less. Smaller ones may belong to an extension, which may unmap them. */
#define SHARED_MIN ((uintptr_t)8 << 20)

typedef struct constant {
	/* NULL: the entry is free. */
	const char *at;
	size_t len;
	uint32_t sightings;
	/* Of the sightings, the last. In seconds, and in requests. */
	time_t last_use;
	uint64_t last_request;
	/* The blob's bytes; NULL: it is not stored, and `blob` says nothing. */
	const char *contents;
	uint32_t blob;
} constant;

static struct {
	uintptr_t start;
	uintptr_t end;
} shared[SHARED_MAPPINGS];
static size_t shared_count;

static constant constants[SETS][WAYS];
static size_t stored;
static size_t stored_bytes;
static uint64_t request = 1;
static time_t swept, refused_until;

/* Neighbours are one: opcache gives parts of its mapping other rights. */
static void add_shared(uintptr_t start, uintptr_t end)
{
	if (shared_count && shared[shared_count - 1].end == start) {
		shared[shared_count - 1].end = end;
	} else if (shared_count < SHARED_MAPPINGS) {
		shared[shared_count].start = start;
		shared[shared_count++].end = end;
	}
}

/* Mappings that were made when PHP started and are kept as long as PHP runs. */
void lazy_blob_attach(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[256];
	bool whole = true;

	shared_count = 0;
	while (maps && fgets(line, sizeof(line), maps)) {
		unsigned long start, end;
		char readable, access;
		/* A long path may cut a line; what follows is no beginning. */
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

bool lazy_blob_is_constant(const char *str, size_t len)
{
	const zend_string *string = string_before(str);

	return SENDOFF_G(threshold) > 0 && len >= (size_t)SENDOFF_G(threshold) &&
		   (uintptr_t)string % sizeof(zend_ulong) == 0 &&
		   is_shared((const char *)string, str + len) && ZSTR_LEN(string) == len &&
		   is_kept_by_engine(string) && lazy_worker();
}

static constant *set_of(const char *at)
{
	uint64_t hash = (uint64_t)(uintptr_t)at * 0x9e3779b97f4a7c15u;

	return constants[(hash >> 32) % SETS];
}

/* The entry of a constant; of one not seen before, in the place of the least seen. */
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

static void forget(constant *entry)
{
	if (entry->contents) {
		stored--;
		stored_bytes -= entry->len;
		sendoff_blob_drop(lazy_attached(), entry->blob);
	}
	memset(entry, 0, sizeof(*entry));
}

void lazy_blob_detach(void)
{
	for (constant *one = constants[0]; lazy_attached() && one < constants[0] + SETS * WAYS; one++) {
		forget(one);
	}
}

/* The stored constant not used for longest; none that this request has used. */
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

static bool has_room(size_t len)
{
	return stored < SENDOFF_BLOBS && stored_bytes + len <= SENDOFF_BLOB_BYTES;
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
	const void *contents;

	if (entry->sightings < STORE_AT || lazy_now() < refused_until || !make_room(entry)) {
		return false;
	}
	if (sendoff_blob_store(lazy_worker(), entry->at, entry->len, &entry->blob, &contents) != 0) {
		refused_until = lazy_now() + REFUSED_SECONDS;
		return false;
	}
	entry->contents = contents;
	stored++;
	stored_bytes += entry->len;
	return true;
}

bool lazy_blob_find(const char *str, size_t len, uint32_t *blob)
{
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
		/* opcache has begun afresh, and another string lies here now. */
		forget(entry);
		return false;
	}
	*blob = entry->blob;
	return true;
}

void lazy_blob_end_request(void)
{
	time_t today = lazy_now();

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
