/*
 * The records of `sendoff explain URL`: for each piece of output, the code that produced it and, if
 * it was copied, why. docs/handover.md specifies the format. In requests that are not explained,
 * the only cost is the test of one flag.
 *
 * Bytes in an output buffer leave later than the script wrote them. The writes since the last
 * output are kept as one note: the first and last line, the number of writes, and the reason why
 * the longest of them could not be handed over.
 */
#include "lazy.h"

#include <string.h>

/* The minimum length of a segment: shorter writes need no reason. */
#define WORTH_A_REASON 4096
/* Bound on the reads that are remembered. */
#define REMEMBERED 64
#define NAME_MAX_LEN 256

static sendoff_worker *listener;

typedef struct place {
	char file[NAME_MAX_LEN];
	uint32_t line;
} place;

/* The note about writes that have not left yet. */
static struct {
	place first;
	place last;
	size_t writes;
	size_t longest;
	char by[64];
	char why[NAME_MAX_LEN + 128];
} pending;

/*
 * Results of reads that PHP's own handlers served. A written string of the same length is probably
 * one of them.
 */
static struct {
	size_t len;
	char why[NAME_MAX_LEN + 128];
} reads[REMEMBERED];
static size_t read_count;

static void say(const char *how, const char *from, const char *what, const char *why)
{
	char text[1024];
	int len = snprintf(text, sizeof(text), "%s\t%s\t%s\t%s", how, from, what, why);

	sendoff_explain(listener, text, MIN((size_t)len, sizeof(text) - 1));
}

void lazy_explain_begin(sendoff_worker *worker)
{
	lazy_explaining = worker && sendoff_explains(worker);
	if (!lazy_explaining) {
		return;
	}
	listener = worker;
	read_count = 0;
	lazy_because_begin();
	memset(&pending, 0, sizeof(pending));
	if (SENDOFF_G(threshold) == 0) {
		say("read", "", "every file", "lazy strings are off: sendoff.threshold is 0");
	} else if (!lazy_worker()) {
		say("read", "", "every file", "the front takes no files: --delivery relay");
	}
}

static void here(place *at)
{
	snprintf(at->file, sizeof(at->file), "%s", zend_get_executed_filename());
	at->line = zend_get_executed_lineno();
}

/* The internal function that is running; "echo" in script code outside of any. */
static void at_work(char *name, size_t size)
{
	const zend_function *function =
		EG(current_execute_data) ? EG(current_execute_data)->func : NULL;

	if (!function) {
		snprintf(name, size, "end of the request");
	} else if (function->type == ZEND_INTERNAL_FUNCTION && function->common.function_name) {
		const zend_class_entry *scope = function->common.scope;
		snprintf(name, size, "%s%s%s", scope ? ZSTR_VAL(scope->name) : "", scope ? "::" : "",
				 ZSTR_VAL(function->common.function_name));
	} else {
		snprintf(name, size, "echo");
	}
}

static void place_text(char *text, size_t size, const place *from, const place *to)
{
	if (from->line == 0) {
		*text = '\0';
	} else if (strcmp(from->file, to->file)) {
		snprintf(text, size, "%s:%u to %s:%u", from->file, from->line, to->file, to->line);
	} else if (from->line == to->line) {
		snprintf(text, size, "%s:%u", from->file, from->line);
	} else {
		/* In a loop the last write may stand on an earlier line than the first. */
		snprintf(text, size, "%s:%u-%u", from->file, MIN(from->line, to->line),
				 MAX(from->line, to->line));
	}
}

void lazy_explain_read(const char *path, const zval *got)
{
	const char *why = lazy_because;
	char from[2 * NAME_MAX_LEN + 32], what[NAME_MAX_LEN + 128], name[64];
	place at;

	lazy_because = NULL;
	if (!why) {
		return;
	}
	here(&at);
	at_work(name, sizeof(name));
	place_text(from, sizeof(from), &at, &at);
	snprintf(what, sizeof(what), "%s(%.*s)", name, NAME_MAX_LEN, path ? path : "");
	say("read", from, what, why);
	if (got && Z_TYPE_P(got) == IS_STRING && read_count < REMEMBERED) {
		reads[read_count].len = Z_STRLEN_P(got);
		snprintf(reads[read_count++].why, sizeof(reads[0].why), "%s: %s", what, why);
	}
}

/* Why `len` bytes at `str` cannot be handed over; NULL: no known reason. */
static const char *obstacle(const char *str, size_t len)
{
	static char text[NAME_MAX_LEN + 128];
	uint32_t file;
	uint64_t offset;
	const char *buffer = lazy_output_obstacle();

	if (buffer) {
		snprintf(text, sizeof(text), "%s", buffer);
		return text;
	}
	if (len < WORTH_A_REASON || mapped_file_find(str, len, &file, &offset)) {
		return NULL;
	}
	for (size_t i = 0; i < read_count; i++) {
		if (reads[i].len == len) {
			return reads[i].why;
		}
	}
	return lazy_was_given() ? "not the bytes of a file as they were read: joined, cut or changed"
							: NULL;
}

void lazy_explain_write(const char *str, size_t len)
{
	place at;

	here(&at);
	if (pending.writes++ == 0) {
		pending.first = at;
		at_work(pending.by, sizeof(pending.by));
	}
	pending.last = at.line ? at : pending.last;
	const char *why = obstacle(str, len);
	if (why && len > pending.longest) {
		pending.longest = len;
		snprintf(pending.why, sizeof(pending.why), "%s", why);
	}
}

/* Makes a note of these bytes if there is none, because they bypassed zend_write. */
static void take_pending(const char *str, size_t len)
{
	if (pending.writes == 0) {
		lazy_explain_write(str, len);
	}
}

static void forget_pending(void)
{
	memset(&pending, 0, sizeof(pending));
}

void lazy_explain_bytes(const char *str, size_t len)
{
	char from[2 * NAME_MAX_LEN + 32], what[96];

	take_pending(str, len);
	place_text(from, sizeof(from), &pending.first, &pending.last);
	if (pending.writes > 1) {
		snprintf(what, sizeof(what), "%zu writes", pending.writes);
	} else {
		snprintf(what, sizeof(what), "%s", pending.by);
	}
	say("bytes", from, what, pending.why);
	forget_pending();
}

/* Reports a piece that leaves as a segment. */
static void say_segment(const char *how, const char *what)
{
	char from[2 * NAME_MAX_LEN + 32];

	take_pending("", 0);
	place_text(from, sizeof(from), &pending.first, &pending.last);
	say(how, from, what, "");
	forget_pending();
}

void lazy_explain_file(uint32_t file, bool recognised)
{
	say_segment(recognised ? "file recognised" : "file", lazy_given_path(file));
}

void lazy_explain_constant(void)
{
	say_segment("file", "a constant");
}
