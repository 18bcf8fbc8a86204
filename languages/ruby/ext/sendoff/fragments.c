/*
 * Fragments: parts of pages that one process makes and all of its pool send (docs/fragments.md).
 *
 * A fragment that is being made is an object of the class Making; it belongs to the thread that has
 * asked for it.
 */
#include "native.h"

/* Made or inherited by the master, before it forks. NULL: none. */
static sendoff_fragments *fragments;
static VALUE making_class;

static void forget(void *pointer)
{
	sendoff_fragment_end(pointer, 0, NULL, 0);
}

static const rb_data_type_t making_type = {
	.wrap_struct_name = "Sendoff::Making",
	.function = {.dfree = forget},
};

/* The arguments of a call without the GVL. */
typedef struct question {
	const char *key;
	size_t len;
	const sendoff_text *tags;
	size_t count;
	unsigned patience;
	sendoff_fragment *asked;
} question;

/* share_fragments(size): keeps fragments in this process and those that it forks. */
static VALUE native_share(VALUE self, VALUE size)
{
	size_t bytes = NUM2SIZET(size);

	if (!fragments && (fragments = sendoff_fragments_of_pool()) == NULL && bytes > 0) {
		fragments = sendoff_fragments_new(bytes);
	}
	return fragments ? Qtrue : Qfalse;
}

static void *ask_without_gvl(void *pointer)
{
	question *all = pointer;

	all->asked =
		sendoff_fragment_ask(fragments, all->key, all->len, all->tags, all->count, all->patience);
	return NULL;
}

/* The texts of an array of strings, in a buffer that Ruby frees; `hold` keeps it alive. */
static sendoff_text *texts_of(VALUE tags, VALUE *hold)
{
	long count = RARRAY_LEN(tags);
	sendoff_text *texts = rb_alloc_tmp_buffer(hold, (count + 1) * (long)sizeof(sendoff_text));

	for (long i = 0; i < count; i++) {
		VALUE tag = rb_ary_entry(tags, i);

		Check_Type(tag, T_STRING);
		texts[i] = (sendoff_text){RSTRING_PTR(tag), (size_t)RSTRING_LEN(tag)};
	}
	return texts;
}

static VALUE string_of(sendoff_fragment *kept)
{
	size_t len;
	const char *bytes = sendoff_fragment_bytes(kept, &len, NULL);
	VALUE string = rb_str_new(bytes, (long)len);

	sendoff_fragment_end(kept, 0, NULL, 0);
	return string;
}

/* fragment_ask(key, tags, milliseconds) -> a String; a Making: the caller makes it; nil: it is not
 * kept */
static VALUE native_ask(VALUE self, VALUE key, VALUE tags, VALUE patience)
{
	VALUE hold, making = TypedData_Wrap_Struct(making_class, &making_type, NULL);
	question all = {.patience = NUM2UINT(patience)};
	size_t len;

	Check_Type(key, T_STRING);
	Check_Type(tags, T_ARRAY);
	all.tags = texts_of(tags, &hold);
	all.count = (size_t)RARRAY_LEN(tags);
	all.key = RSTRING_PTR(key);
	all.len = (size_t)RSTRING_LEN(key);
	rb_thread_call_without_gvl2(ask_without_gvl, &all, NULL, NULL);
	RB_GC_GUARD(key);
	RB_GC_GUARD(tags);
	rb_free_tmp_buffer(&hold);
	if (!all.asked) {
		return Qnil;
	}
	if (sendoff_fragment_bytes(all.asked, &len, NULL)) {
		return string_of(all.asked);
	}
	DATA_PTR(making) = all.asked;
	return making;
}

/* fragment_fetch(key) -> a String, or nil */
static VALUE native_fetch(VALUE self, VALUE key)
{
	Check_Type(key, T_STRING);
	sendoff_fragment *kept =
		sendoff_fragment_fetch(fragments, RSTRING_PTR(key), (size_t)RSTRING_LEN(key));
	return kept ? string_of(kept) : Qnil;
}

/* fragment_end(making, ttl, data): keeps what the caller has made, unless it is nil. */
static VALUE native_end(VALUE self, VALUE making, VALUE ttl, VALUE data)
{
	unsigned seconds = NUM2UINT(ttl);
	sendoff_fragment *asked = rb_check_typeddata(making, &making_type);

	if (!NIL_P(data)) {
		Check_Type(data, T_STRING);
	}
	DATA_PTR(making) = NULL;
	return sendoff_fragment_end(asked, seconds, NIL_P(data) ? NULL : RSTRING_PTR(data),
								NIL_P(data) ? 0 : (size_t)RSTRING_LEN(data))
			   ? Qtrue
			   : Qfalse;
}

/* fragment_store(key, tags, ttl, data, purges) */
static VALUE native_store(VALUE self, VALUE key, VALUE tags, VALUE ttl, VALUE data, VALUE purges)
{
	unsigned seconds = NUM2UINT(ttl);
	uint64_t since = NUM2ULL(purges);
	VALUE hold;

	Check_Type(key, T_STRING);
	Check_Type(tags, T_ARRAY);
	Check_Type(data, T_STRING);
	sendoff_text *texts = texts_of(tags, &hold);
	int is_kept = sendoff_fragment_store(fragments, RSTRING_PTR(key), (size_t)RSTRING_LEN(key),
										 texts, (size_t)RARRAY_LEN(tags), seconds,
										 RSTRING_PTR(data), (size_t)RSTRING_LEN(data), since);
	rb_free_tmp_buffer(&hold);
	return is_kept ? Qtrue : Qfalse;
}

static VALUE native_purges(VALUE self)
{
	return ULL2NUM(sendoff_fragments_purges(fragments));
}

/* fragment_purge(tag): with nil all fragments. */
static VALUE native_purge(VALUE self, VALUE tag)
{
	if (!NIL_P(tag)) {
		Check_Type(tag, T_STRING);
	}
	sendoff_fragments_purge(fragments, NIL_P(tag) ? NULL : RSTRING_PTR(tag),
							NIL_P(tag) ? 0 : (size_t)RSTRING_LEN(tag));
	return Qnil;
}

void define_fragments(VALUE module)
{
	VALUE native = rb_define_module_under(module, "NativeFragments");

	making_class = rb_define_class_under(native, "Making", rb_cObject);
	rb_undef_alloc_func(making_class);
	rb_define_singleton_method(native, "share", native_share, 1);
	rb_define_singleton_method(native, "ask", native_ask, 3);
	rb_define_singleton_method(native, "fetch", native_fetch, 1);
	rb_define_singleton_method(native, "end_making", native_end, 3);
	rb_define_singleton_method(native, "store", native_store, 5);
	rb_define_singleton_method(native, "purges", native_purges, 0);
	rb_define_singleton_method(native, "purge", native_purge, 1);
}
