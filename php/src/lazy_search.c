/*
 * Finds files inside long output: `$head . $lazy . $foot`, templates, buffers with other text
 * before the file, substr() from the middle of a file.
 *
 * The module does not track what a script does with the strings it has read: that would take a hook
 * in concatenation, which keeps the JIT from compiling it, or in substr(), where every call would
 * pay. Instead, long output is searched for the lazy strings of this request. Per MB, memmem(3)
 * takes 3 to 7 us and memcmp(3) 30 us; sending it through the link costs worker and front 500 us.
 * As in lazy_match.c only the comparison decides.
 */
#include "lazy.h"

/*
 * The shortest match, in bytes. LAZY_SEARCH_MIN is the shortest output that is searched. (PHP's own
 * tests run with smaller values.)
 */
#ifndef MATCH_MIN
#define MATCH_MIN ((size_t)16 * 1024)
#endif

/* Length of the string passed to memmem(3). */
#define NEEDLE 64
/*
 * Matches are compared, and so cut, in steps of this length; the last step ends where the shorter
 * of the two ranges ends.
 */
#define STEP 4096
#define RECENT 4
/* At most this many candidates are compared per search. */
#define MISTAKES_MAX 4
/* find_part() searches a lazy string up to 4 times the length of the output plus this. */
#define DEPTH_MAX ((size_t)1 << 20)

/* Ring of the lazy strings that this request got last. */
static const zend_string *recent[RECENT];
static uint32_t noted;

/*
 * After more than PATIENCE consecutive searches without a match, only one output in LEFT_OUT is
 * searched, until one matches.
 */
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

/* Finds the beginning of a lazy string in the output. */
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

/* Finds the beginning of the output in a lazy string. */
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
