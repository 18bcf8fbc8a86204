/*
 * Who makes a fragment, and who waits for it.
 *
 * The first worker that asks for a fragment makes it. Workers that ask meanwhile send the old one,
 * or wait. A worker that waits for too long, or finds the memory in disorder, makes the fragment
 * for itself: a page never lacks one.
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
/* In place of the number of a buffer: its fragment has ended. */
#define ENDED ((void *)UINTPTR_MAX)

/* A fragment that is being made. */
typedef struct {
	fragment_key key;
	fragment_labels labels;
	int seat;
	bool has_begun;
	/* A Fiber of worker mode may go on in a later request, to which the making does not belong. */
	uint64_t request;
} making;

/* The number of this request. */
static uint64_t request;
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

fragment_key fragment_key_of(const zend_string *name)
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

void fragment_key_free(const fragment_key *key)
{
	zend_string_release(key->text);
}

bool fragment_key_fits(const fragment_key *key)
{
	return ZSTR_LEN(key->text) <= NAME_MAX_LEN;
}

bool fragment_is_doubtful(void)
{
	return counts.makings > 0 && fragments_purges() != counts.purges;
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
		fragment_key_free(&one->key);
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

void fragment_serve(fragment_call *args, zval *result)
{
	making one = {.key = fragment_key_of(args->name), .seat = -1, .request = request};
	fragment_found found;
	bool is_kept =
		fragments_are_on() && fragment_key_fits(&one.key) && (args->keeps_itself || args->ttl > 0);

	if (is_kept && find_or_take(&one.key, &found, &one.seat) &&
		fragment_give(&one.key, &found, result)) {
		counts.kept++;
	} else {
		if (is_kept) {
			begin_making(&one, args);
		}
		args->keeps_itself |= !is_kept;
		result ? make_string(args, &one, result) : make_output(args, &one);
		end_making(&one);
	}
	fragment_key_free(&one.key);
}

static void end_request(void)
{
	fragments_release_all();
	if (UNEXPECTED(lazy_explaining) && counts.kept + counts.made > 0) {
		lazy_explain_fragments(counts.kept, counts.made, (long)counts.making_time);
	}
	memset(&counts, 0, sizeof(counts));
	request++;
	fragment_next_request();
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
