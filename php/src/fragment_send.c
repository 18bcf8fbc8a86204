/*
 * How a kept fragment is sent. A worker that has sent one twice stores it as a blob (lazy_blob.c),
 * so that it leaves as a segment from then on.
 */
#include "fragments.h"
#include "lazy.h"

#include "php_output.h"

/* Blobs of fragments in this worker; the other blobs are for constants. */
#define STORED_MAX 24
/* Sending it once must not cost a memory file (lazy_blob.c, STORE_AT). */
#define STORE_AT 2

/* A fragment that this worker has sent. */
typedef struct {
	/* fragment_found.at; 0: the entry is free. */
	uint64_t at;
	size_t len;
	unsigned int sent;
	uint64_t last_request;
	/* The bytes of its blob; NULL: it is not stored. */
	const char *contents;
	uint32_t blob;
} sent_fragment;

static sent_fragment sent[STORED_MAX];
static uint64_t request = 1;

/*
 * The entry of a fragment; if there is none, the least recently used one, unless this request has
 * used all: then NULL.
 */
static sent_fragment *entry_of(const fragment_found *found)
{
	sent_fragment *oldest = NULL;

	for (sent_fragment *one = sent; one < sent + STORED_MAX; one++) {
		if (one->at == found->at) {
			return one;
		}
		if (one->last_request != request && (!oldest || one->last_request < oldest->last_request)) {
			oldest = one;
		}
	}
	if (oldest) {
		if (oldest->contents) {
			lazy_blob_give_up(oldest->blob, oldest->len);
		}
		*oldest = (sent_fragment){.at = found->at, .len = found->len};
	}
	return oldest;
}

static void store_blob(sent_fragment *entry, const zend_string *bytes)
{
	if (++entry->sent >= STORE_AT) {
		entry->contents = lazy_blob_keep(ZSTR_VAL(bytes), entry->len, &entry->blob);
	}
}

/* The bytes of a fragment as a new string; NULL: another fragment has taken its place. */
static zend_string *copy(const fragment_key *key, const fragment_found *found)
{
	zend_string *bytes = zend_string_alloc(found->len, false);

	if (!fragments_copy(key, found, ZSTR_VAL(bytes))) {
		zend_string_efree(bytes);
		return NULL;
	}
	ZSTR_VAL(bytes)[found->len] = '\0';
	return bytes;
}

/* Writes a kept fragment. False: it is not there any more. */
static bool write_kept(const fragment_key *key, const fragment_found *found)
{
	sent_fragment *entry = lazy_worker() ? entry_of(found) : NULL;

	if (entry) {
		entry->last_request = request;
	}
	if (entry && entry->contents) {
		lazy_blob_write(entry->contents, entry->len, entry->blob);
		return true;
	}
	zend_string *bytes = copy(key, found);
	if (!bytes) {
		return false;
	}
	if (entry) {
		store_blob(entry, bytes);
	}
	zend_write(ZSTR_VAL(bytes), ZSTR_LEN(bytes));
	zend_string_release(bytes);
	return true;
}

bool fragment_give(const fragment_key *key, const fragment_found *found, zval *result)
{
	if (!result) {
		return write_kept(key, found);
	}
	zend_string *bytes = copy(key, found);
	if (bytes) {
		ZVAL_STR(result, bytes);
	}
	return bytes != NULL;
}

void fragment_next_request(void)
{
	request++;
}
