/*
 * Files inside long output: `$head . $lazy . $foot`, templates, buffers with something before the
 * file, substr() from the middle.
 *
 * Where a script puts what it has read is not recorded: that would need a hook in concatenation,
 * which turns the JIT off for it, or in substr(), which every call would pay for. So long output is
 * searched for what this request has read as lazy strings. memmem(3) looks through a megabyte in
 * 3 to 7 us and memcmp(3) compares one in 30; sending it through the link costs both ends 500.
 * As in lazy_match.c only the comparison decides.
 */
#include "lazy.h"

/* The shortest match. (LAZY_SEARCH_MIN is the shortest output that is searched.) (PHP's own tests
 * run with less.) */
#ifndef MATCH_MIN
#define MATCH_MIN ((size_t)16 * 1024)
#endif

/* Bytes that are searched for. */
#define NEEDLE 64
/* Matches are cut to multiples of this, unless they end where one of the compared ranges ends. */
#define STEP 4096
#define RECENT 4
/* False starts in one search: places that look like the beginning of a lazy string. */
#define MISTAKES_MAX 4
/* How far from its beginning a lazy string is searched for a part, beyond what was written. */
#define DEPTH_MAX ((size_t)1 << 20)

/* The last lazy strings of this request. */
static const zend_string *recent[RECENT];
static uint32_t noted;

/* After more than PATIENCE searches in vain, only one in LEFT_OUT is made. */
#define PATIENCE 8
#define LEFT_OUT 32
static uint32_t in_vain;

void lazy_search_reset(void)
{
	memset(recent, 0, sizeof(recent));
	noted = 0;
}

void lazy_search_note(const zend_string *lazy)
{
	for (int i = 0; i < RECENT; i++) {
		if (recent[i] == lazy) {
			return;
		}
	}
	recent[noted++ % RECENT] = lazy;
}

static size_t equal_bytes(const char *a, const char *b, size_t most)
{
	size_t equal = 0;

	while (equal < most) {
		size_t step = MIN(most - equal, STEP);
		if (memcmp(a + equal, b + equal, step) != 0) {
			break;
		}
		equal += step;
	}
	return equal;
}

/* Where the beginning of a lazy string stands in the output. */
static bool find_beginning(const char *str, size_t len, const zend_string *lazy, lazy_found *found)
{
	const char *at = str, *end = str + len - MATCH_MIN + NEEDLE;

	for (int mistakes = 0; mistakes < MISTAKES_MAX; mistakes++, at++) {
		at = memmem(at, (size_t)(end - at), ZSTR_VAL(lazy), NEEDLE);
		if (!at) {
			return false;
		}
		size_t most = MIN(ZSTR_LEN(lazy), (size_t)(str + len - at));
		size_t equal = equal_bytes(at, ZSTR_VAL(lazy), most);
		if (equal >= MATCH_MIN) {
			*found = (lazy_found){(size_t)(at - str), ZSTR_VAL(lazy), equal};
			return true;
		}
	}
	return false;
}

/* Where in a lazy string the output begins. */
static bool find_part(const char *str, size_t len, const zend_string *lazy, lazy_found *found)
{
	const char *at = ZSTR_VAL(lazy), *start = at;
	size_t depth = MIN(ZSTR_LEN(lazy), 4 * len + DEPTH_MAX);

	for (int mistakes = 0; mistakes < MISTAKES_MAX; mistakes++, at++) {
		at = memmem(at, depth - (size_t)(at - start), str, NEEDLE);
		if (!at) {
			return false;
		}
		size_t equal = equal_bytes(str, at, MIN(len, ZSTR_LEN(lazy) - (size_t)(at - start)));
		if (equal >= MATCH_MIN) {
			*found = (lazy_found){0, at, equal};
			return true;
		}
	}
	return false;
}

static bool search(const char *str, size_t len, lazy_found *found)
{
	bool any = false;

	for (int i = 0; i < RECENT; i++) {
		uint32_t file;
		uint64_t offset;
		lazy_found first;
		const zend_string *lazy = recent[i];

		if (!lazy || ZSTR_LEN(lazy) < MATCH_MIN ||
			!mapped_file_find(ZSTR_VAL(lazy), ZSTR_LEN(lazy), &file, &offset)) {
			continue;
		}
		if ((find_beginning(str, len, lazy, &first) || find_part(str, len, lazy, &first)) &&
			(!any || first.before < found->before)) {
			*found = first;
			any = true;
		}
	}
	return any;
}

bool lazy_search(const char *str, size_t len, lazy_found *found)
{
	if (len < LAZY_SEARCH_MIN || !recent[0] || !lazy_worker()) {
		return false;
	}
	bool impatient = in_vain > PATIENCE && in_vain % LEFT_OUT != 0;
	bool hit = !impatient && search(str, len, found);

	in_vain = hit ? 0 : in_vain + 1;
	return hit;
}
