/*
 * The functions for fragments (docs/fragments.md).
 *
 * The first worker that asks for a fragment makes it. Workers that ask meanwhile send the old one,
 * or wait. A worker that waits for too long, or finds the memory in disorder, makes the fragment
 * for itself: a page never lacks one.
 *
 * A worker that has sent a fragment twice stores it as a blob (lazy_blob.c), so that it leaves as a
 * segment from then on.
 */
#include "fragments.h"
#include "lazy.h"

#include "php_output.h"
#include "zend_exceptions.h"
#include "zend_observer.h"

/* Longest wait for another process, in ms, as for pages of the page cache. */
#define WAIT 5000
/* The longest name of a fragment that is kept, with the site's folder, in bytes. */
#define NAME_MAX_LEN 4096
/* Blobs of fragments in this worker; the other blobs are for constants. */
#define STORED_MAX 24
/* Sending it once must not cost a memory file (lazy_blob.c, STORE_AT). */
#define STORE_AT 2
/* In place of the number of a buffer: its fragment has ended. */
#define ENDED ((void *)UINTPTR_MAX)

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

/* Arguments of the functions. */
typedef struct {
	zend_string *name;
	zend_long ttl;
	/* The function that makes the fragment keeps it itself. */
	bool keeps_itself;
	zend_fcall_info call;
	zend_fcall_info_cache cache;
	HashTable *tags;
} fragment_call;

/* A fragment that is being made. */
typedef struct {
	fragment_key key;
	fragment_labels labels;
	int seat;
	bool has_begun;
	/* A Fiber of worker mode may go on in a later request, to which the making does not belong. */
	uint64_t request;
} making;

static sent_fragment sent[STORED_MAX];
static uint64_t request = 1;
/* Output buffers of fragments so far. */
static uintptr_t buffers;
/* Switches between Fibers so far. */
static uint64_t switches;

/* Of this request. */
static struct {
	unsigned int kept, made;
	int64_t making_time;
	/* Fragments that are being made, one within the other, and the number of purges when the
	 * outermost one was begun. */
	unsigned int makings;
	uint64_t purges;
} counts;

static fragment_key key_of(const zend_string *name)
{
	char *root = sapi_getenv(ZEND_STRL("DOCUMENT_ROOT"));
	size_t len = root ? strlen(root) : 0;
	fragment_key key = {.text = zend_string_alloc(len + 1 + ZSTR_LEN(name), false)};
	char *text = ZSTR_VAL(key.text);

	memcpy(text, root ? root : "", len);
	text[len] = '\0';
	memcpy(text + len + 1, ZSTR_VAL(name), ZSTR_LEN(name) + 1);
	if (root) {
		efree(root);
	}
	key.hash = zend_string_hash_val(key.text);
	return key;
}

static void free_key(const fragment_key *key)
{
	zend_string_release(key->text);
}

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

/* True if a kept fragment was found; the seat, if there is one, is for a caller that makes it. */
static bool find_or_take(const fragment_key *key, fragment_found *found, int *seat)
{
	int64_t deadline = fragments_now() + WAIT;
	int other;

	*seat = -1;
	while (!fragments_find(key, found) || !found->is_fresh) {
		if (*seat >= 0 || found->is_refused) {
			return false;
		}
		switch (fragments_take(key, &other)) {
		case FRAGMENT_TAKEN:
			/* It may have been made since it was looked up. */
			*seat = other;
			break;
		case FRAGMENT_BUSY:
			if (found->at) {
				return true;
			}
			if (!fragments_wait(other, key, deadline)) {
				return false;
			}
			break;
		case FRAGMENT_NO_SEAT:
			return false;
		}
	}
	fragments_release(*seat);
	*seat = -1;
	return true;
}

/* The fragment was made, or not. The end of a request has ended its makings. */
static void end_making(making *one)
{
	if (one->request == request) {
		fragments_release(one->seat);
		counts.makings -= one->has_begun;
	}
	one->has_begun = false;
}

static void begin_making(making *one, const fragment_call *args)
{
	if (counts.makings++ == 0) {
		counts.purges = fragments_purges();
	}
	fragments_label(&one->labels, &one->key, args->tags);
	one->has_begun = true;
}

/* Calls the function that makes a fragment. A bailout passes through. */
static void call_maker(fragment_call *args, making *one, zval *result)
{
	int64_t begun = fragments_now();
	/* Volatile because it is read after a long jump. */
	volatile bool bailout = false;

	args->call.retval = result;
	zend_try
	{
		zend_call_function(&args->call, &args->cache);
	}
	zend_catch
	{
		bailout = true;
	}
	zend_end_try();
	counts.made++;
	counts.making_time += fragments_now() - begun;
	if (bailout) {
		end_making(one);
		free_key(&one->key);
		zend_bailout();
	}
}

static void keep(const making *one, const fragment_call *args, const char *bytes, size_t len)
{
	if (!args->keeps_itself) {
		fragments_store(&one->key, &one->labels, args->ttl, bytes, len);
	}
}

static void refuse(const making *one, const fragment_call *args)
{
	if (!args->keeps_itself) {
		fragments_refuse(&one->key, &one->labels, args->ttl);
	}
}

/* True if exit() ends the script. */
static bool is_exiting(void)
{
	return EG(exception) && zend_is_unwind_exit(EG(exception));
}

/*
 * Ends the output buffer of a fragment, so that its output goes where it would go without
 * fragments, and the buffers beneath whose fragments have ended before. An exception must not reach
 * callbacks of outer buffers.
 */
static void end_buffer(void)
{
	zend_exception_save();
	while (php_output_end() == SUCCESS && OG(active) && OG(active)->opaq == ENDED) {
	}
	zend_exception_restore();
}

/* Notes that the fragment of a buffer, which lies beneath others, has ended. */
static void note_ended(const void *buffer)
{
	php_output_handler **all = zend_stack_base(&OG(handlers));

	for (int i = 0; i < zend_stack_count(&OG(handlers)); i++) {
		if (all[i]->opaq == buffer) {
			all[i]->opaq = ENDED;
		}
	}
}

/*
 * Makes a fragment, writes it and keeps it. It is not kept if the function has thrown, has opened
 * or closed output buffers, or has flushed or cleaned the buffer: its output is then not all there.
 * If Fibers were switched, other output may be there.
 */
static void make_output(fragment_call *args, making *one)
{
	zval result, text;
	uint64_t switches_before = switches;

	ZVAL_UNDEF(&result);
	if (OG(running) || php_output_start_default() == FAILURE) {
		call_maker(args, one, &result);
		zval_ptr_dtor(&result);
		return;
	}
	/* Another buffer may get this one's address, so it gets a number. */
	void *buffer = (void *)++buffers;
	php_output_handler_set_context(OG(active), buffer, NULL);
	call_maker(args, one, &result);
	zval_ptr_dtor(&result);
	/* PHP itself writes all buffers when a script ends. */
	if (is_exiting() || !OG(active)) {
		return;
	}
	if (OG(active)->opaq != buffer) {
		note_ended(buffer);
		refuse(one, args);
		return;
	}
	bool is_whole =
		!(OG(active)->flags & PHP_OUTPUT_HANDLER_STARTED) && switches == switches_before;
	if (!is_whole) {
		refuse(one, args);
	} else if (!EG(exception) && php_output_get_contents(&text) == SUCCESS) {
		keep(one, args, Z_STRVAL(text), Z_STRLEN(text));
		zval_ptr_dtor(&text);
	}
	end_buffer();
}

/* Makes a fragment that is returned as a string, and keeps it. */
static void make_string(fragment_call *args, making *one, zval *result)
{
	ZVAL_UNDEF(result);
	call_maker(args, one, result);
	if (EG(exception)) {
		zval_ptr_dtor(result);
		ZVAL_UNDEF(result);
	} else if (Z_TYPE_P(result) != IS_STRING) {
		zend_type_error(
			"sendoff_fragment_string(): Argument #3 ($make) must return a string, %s returned",
			zend_zval_type_name(result));
		zval_ptr_dtor(result);
		ZVAL_UNDEF(result);
	} else {
		keep(one, args, Z_STRVAL_P(result), Z_STRLEN_P(result));
	}
}

/* The kept fragment, as output, or as a string if `result` is not NULL. */
static bool give_kept(const fragment_key *key, const fragment_found *found, zval *result)
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

/* Serves a call; the fragment goes to the output if `result` is NULL. */
static void serve(fragment_call *args, zval *result)
{
	making one = {.key = key_of(args->name), .seat = -1, .request = request};
	fragment_found found;
	bool is_kept = fragments_are_on() && ZSTR_LEN(one.key.text) <= NAME_MAX_LEN &&
				   (args->keeps_itself || args->ttl > 0);

	if (is_kept && find_or_take(&one.key, &found, &one.seat) &&
		give_kept(&one.key, &found, result)) {
		counts.kept++;
	} else {
		if (is_kept) {
			begin_making(&one, args);
		}
		args->keeps_itself |= !is_kept;
		result ? make_string(args, &one, result) : make_output(args, &one);
		end_making(&one);
	}
	free_key(&one.key);
}

/* Makes all tags strings, in a new table. NULL, after an exception: there are too many. */
static HashTable *strings_of(HashTable *tags, uint32_t argument)
{
	HashTable *strings = zend_new_array(tags ? zend_hash_num_elements(tags) : 0);
	zval *tag, string;

	if (tags) {
		ZEND_HASH_FOREACH_VAL(tags, tag)
		{
			ZVAL_STR(&string, zval_get_string(tag));
			zend_hash_next_index_insert(strings, &string);
		}
		ZEND_HASH_FOREACH_END();
	}
	if (!EG(exception) && zend_hash_num_elements(strings) > FRAGMENT_TAGS) {
		zend_argument_value_error(argument, "must have at most %d elements", FRAGMENT_TAGS);
	}
	if (EG(exception)) {
		zend_array_destroy(strings);
		return NULL;
	}
	return strings;
}

/* Sends the fragment, or returns it in `string` if that is not NULL. */
static void fragment(fragment_call *args, zval *string)
{
	args->tags = strings_of(args->tags, 4);
	if (args->tags) {
		serve(args, string);
		zend_array_destroy(args->tags);
	}
}

/* sendoff_fragment(string $key, int $ttl, callable $make, array $tags = []): void */
PHP_FUNCTION(sendoff_fragment)
{
	fragment_call args = {0};

	ZEND_PARSE_PARAMETERS_START(3, 4)
	Z_PARAM_STR(args.name)
	Z_PARAM_LONG(args.ttl)
	Z_PARAM_FUNC(args.call, args.cache)
	Z_PARAM_OPTIONAL
	Z_PARAM_ARRAY_HT(args.tags)
	ZEND_PARSE_PARAMETERS_END();

	fragment(&args, NULL);
}

/* sendoff_fragment_string(string $key, ?int $ttl, callable $make, array $tags = []): string */
PHP_FUNCTION(sendoff_fragment_string)
{
	fragment_call args = {0};

	ZEND_PARSE_PARAMETERS_START(3, 4)
	Z_PARAM_STR(args.name)
	Z_PARAM_LONG_OR_NULL(args.ttl, args.keeps_itself)
	Z_PARAM_FUNC(args.call, args.cache)
	Z_PARAM_OPTIONAL
	Z_PARAM_ARRAY_HT(args.tags)
	ZEND_PARSE_PARAMETERS_END();

	fragment(&args, return_value);
}

/* sendoff_fragment_fetch(string $key): ?string */
PHP_FUNCTION(sendoff_fragment_fetch)
{
	zend_string *name;
	fragment_found found;

	ZEND_PARSE_PARAMETERS_START(1, 1)
	Z_PARAM_STR(name)
	ZEND_PARSE_PARAMETERS_END();

	fragment_key key = key_of(name);
	if (fragments_find(&key, &found) && found.is_fresh) {
		give_kept(&key, &found, return_value);
	}
	free_key(&key);
}

/* sendoff_fragment_store(string $key, int $ttl, string $value, array $tags = []): bool */
PHP_FUNCTION(sendoff_fragment_store)
{
	zend_string *name, *value;
	zend_long ttl;
	HashTable *tags = NULL;
	fragment_labels labels;

	ZEND_PARSE_PARAMETERS_START(3, 4)
	Z_PARAM_STR(name)
	Z_PARAM_LONG(ttl)
	Z_PARAM_STR(value)
	Z_PARAM_OPTIONAL
	Z_PARAM_ARRAY_HT(tags)
	ZEND_PARSE_PARAMETERS_END();

	tags = strings_of(tags, 4);
	if (!tags) {
		RETURN_THROWS();
	}
	fragment_key key = key_of(name);
	RETVAL_FALSE;
	if (ttl > 0 && fragments_are_on() && ZSTR_LEN(key.text) <= NAME_MAX_LEN) {
		fragments_label(&labels, &key, tags);
		/* A purge since the fragment was begun may concern tags that were not known then. */
		bool is_sure = counts.makings == 0 || fragments_purges() == counts.purges;
		RETVAL_BOOL(is_sure &&
					fragments_store(&key, &labels, ttl, ZSTR_VAL(value), ZSTR_LEN(value)));
	}
	free_key(&key);
	zend_array_destroy(tags);
}

/* sendoff_fragment_delete(string $key): void */
PHP_FUNCTION(sendoff_fragment_delete)
{
	zend_string *name;

	ZEND_PARSE_PARAMETERS_START(1, 1)
	Z_PARAM_STR(name)
	ZEND_PARSE_PARAMETERS_END();

	if (fragments_are_on()) {
		fragment_key key = key_of(name);
		fragments_purge(key.text);
		free_key(&key);
	}
}

/* sendoff_fragment_purge(?array $tags = null): void */
PHP_FUNCTION(sendoff_fragment_purge)
{
	HashTable *tags = NULL;
	zval *tag;

	ZEND_PARSE_PARAMETERS_START(0, 1)
	Z_PARAM_OPTIONAL
	Z_PARAM_ARRAY_HT_OR_NULL(tags)
	ZEND_PARSE_PARAMETERS_END();

	if (fragments_are_on() && !tags) {
		fragments_purge(NULL);
	} else if (fragments_are_on()) {
		ZEND_HASH_FOREACH_VAL(tags, tag)
		{
			zend_string *text = zval_get_string(tag);
			fragments_purge(text);
			zend_string_release(text);
		}
		ZEND_HASH_FOREACH_END();
	}
}

static void end_request(void)
{
	fragments_release_all();
	if (UNEXPECTED(lazy_explaining) && counts.kept + counts.made > 0) {
		lazy_explain_fragments(counts.kept, counts.made, (long)counts.making_time);
	}
	memset(&counts, 0, sizeof(counts));
	request++;
}

static void note_switch(zend_fiber_context *from, zend_fiber_context *to)
{
	(void)from;
	(void)to;
	switches++;
}

void fragment_startup(void)
{
	lazy_before_end = end_request;
	zend_observer_fiber_switch_register(note_switch);
}
