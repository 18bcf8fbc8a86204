/*
 * The functions for fragments (docs/fragments.md).
 */
#include "fragments.h"

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
		fragment_serve(args, string);
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

	fragment_key key = fragment_key_of(name);
	if (fragments_find(&key, &found) && found.is_fresh) {
		fragment_give(&key, &found, return_value);
	}
	fragment_key_free(&key);
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
	fragment_key key = fragment_key_of(name);
	RETVAL_FALSE;
	if (ttl > 0 && fragments_are_on() && fragment_key_fits(&key)) {
		fragments_label(&labels, &key, tags);
		RETVAL_BOOL(!fragment_is_doubtful() &&
					fragments_store(&key, &labels, ttl, ZSTR_VAL(value), ZSTR_LEN(value)));
	}
	fragment_key_free(&key);
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
		fragment_key key = fragment_key_of(name);
		fragments_purge(key.text);
		fragment_key_free(&key);
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
