/*
 * The table of request parameters. The strings belong to the worker and are valid until the next
 * request; only values that request_info.c changes are copied.
 *
 * Requests have some 30 parameters. A linear search that compares lengths first costs less than
 * filling a hash table.
 */
#include "php_sendoff.h"

typedef struct {
	const char *name;
	size_t name_len;
	char *value; /* NULL: removed */
	size_t value_len;
} param;

static param *params;
static size_t param_count, param_capacity;

/* A bit for each name in the table, by its length and some of its letters. Most names that are
 * looked up are not in it, and most that are sent are sent once. */
static uint64_t marks[4];

static inline uint64_t mark_of(const char *name, size_t name_len, uint64_t **word)
{
	uint32_t hash = (uint32_t)name_len;
	if (name_len) {
		hash |= (uint32_t)(unsigned char)name[0] << 8 |
				(uint32_t)(unsigned char)name[name_len / 2] << 16 |
				(uint32_t)(unsigned char)name[name_len - 1] << 24;
	}
	/* A multiplicative hash: the highest bits depend on all others. */
	hash *= UINT32_C(2654435761);
	*word = &marks[hash >> 30];
	return UINT64_C(1) << (hash >> 24 & 63);
}

/* A value set by sendoff_params_set(). All are freed when the request ends. */
typedef struct copy {
	struct copy *next;
	char text[];
} copy;

static copy *copies;

static param *add(const char *name, size_t name_len)
{
	if (param_count == param_capacity) {
		param_capacity = param_capacity ? param_capacity * 2 : 64;
		params = perealloc(params, param_capacity * sizeof(param), 1);
	}
	uint64_t *word, mark = mark_of(name, name_len, &word);
	*word |= mark;
	param *entry = &params[param_count++];
	entry->name = name;
	entry->name_len = name_len;
	return entry;
}

static param *find(const char *name, size_t name_len)
{
	uint64_t *word, mark = mark_of(name, name_len, &word);
	if (!(*word & mark)) {
		return NULL;
	}
	for (size_t i = 0; i < param_count; i++) {
		param *entry = &params[i];
		if (entry->name_len == name_len && entry->value && !memcmp(entry->name, name, name_len)) {
			return entry;
		}
	}
	return NULL;
}

void sendoff_params_load(const sendoff_worker *worker)
{
	size_t count;
	const sendoff_param *sent = sendoff_params(worker, &count);

	param_count = 0;
	memset(marks, 0, sizeof(marks));
	param *role = add("FCGI_ROLE", sizeof("FCGI_ROLE") - 1);
	role->value = "RESPONDER";
	role->value_len = sizeof("RESPONDER") - 1;
	for (size_t i = 0; i < count; i++) {
		/* As in php-fpm, the last of several parameters with one name counts, in the position of
		 * the first. */
		param *entry = find(sent[i].name, sent[i].name_len);
		if (!entry) {
			entry = add(sent[i].name, sent[i].name_len);
		}
		/* PHP's interfaces take `char *` but do not write. */
		entry->value = (char *)sent[i].value;
		entry->value_len = sent[i].value_len;
	}
}

char *sendoff_params_get(const char *name, size_t name_len)
{
	param *entry = find(name, name_len);
	return entry ? entry->value : NULL;
}

char *sendoff_params_set(const char *name, size_t name_len, const char *value)
{
	param *entry = find(name, name_len);
	if (!value) {
		if (entry) {
			entry->value = NULL;
		}
		return NULL;
	}
	size_t len = strlen(value);
	copy *kept = pemalloc(sizeof(copy) + len + 1, 1);
	memcpy(kept->text, value, len + 1);
	kept->next = copies;
	copies = kept;
	if (!entry) {
		entry = add(name, name_len);
	}
	entry->value = kept->text;
	entry->value_len = len;
	return kept->text;
}

void sendoff_params_clear(void)
{
	param_count = 0;
	memset(marks, 0, sizeof(marks));
	while (copies) {
		copy *next = copies->next;
		pefree(copies, 1);
		copies = next;
	}
}

/* In reverse order, as php-fpm lists them in $_SERVER. */
void sendoff_params_each(sendoff_params_visitor visit, void *arg)
{
	for (size_t i = param_count; i-- > 0;) {
		param *entry = &params[i];
		if (entry->value) {
			visit(entry->name, (unsigned int)entry->name_len, entry->value,
				  (unsigned int)entry->value_len, arg);
		}
	}
}
