/*
 * The table of request parameters. The strings belong to the worker and are valid until the next
 * request; only values that request_info.c changes are copied.
 *
 * Requests have some 30 parameters. Their places by hash are 256 numbers, so that a search compares
 * one name or none, and a new request clears 1 KB.
 */
#include "php_sendoff.h"

typedef struct {
	const char *name;
	size_t name_len;
	char *value; /* NULL: removed */
	size_t value_len;
	uint32_t older; /* the parameter added before with the same hash, as in `newest` */
} param;

static param *params;
static size_t param_count, param_capacity;

/* By the hash of a name: the place of the newest parameter, counted from 1; 0: there is none. */
static uint32_t newest[256];

/* A hash of the length and of some letters of a name. */
static inline uint32_t hash_of(const char *name, size_t name_len)
{
	uint32_t hash = (uint32_t)name_len;
	if (name_len) {
		hash |= (uint32_t)(unsigned char)name[0] << 8 |
				(uint32_t)(unsigned char)name[name_len / 2] << 16 |
				(uint32_t)(unsigned char)name[name_len - 1] << 24;
	}
	/* A multiplicative hash: the highest bits depend on all others. */
	return hash * UINT32_C(2654435761) >> 24;
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
	uint32_t *place = &newest[hash_of(name, name_len)];
	param *entry = &params[param_count++];
	entry->name = name;
	entry->name_len = name_len;
	entry->older = *place;
	*place = (uint32_t)param_count;
	return entry;
}

static param *find(const char *name, size_t name_len)
{
	uint32_t place = newest[hash_of(name, name_len)];
	while (place) {
		param *entry = &params[place - 1];
		if (entry->name_len == name_len && entry->value && !memcmp(entry->name, name, name_len)) {
			return entry;
		}
		place = entry->older;
	}
	return NULL;
}

static bool is_hidden(const sendoff_param *sent)
{
	return sent->name_len == sizeof(SENDOFF_ACCEL) - 1 &&
		   !memcmp(sent->name, SENDOFF_ACCEL, sent->name_len);
}

void sendoff_params_load(const sendoff_worker *worker)
{
	size_t count;
	const sendoff_param *sent = sendoff_params(worker, &count);

	param_count = 0;
	memset(newest, 0, sizeof(newest));
	param *role = add("FCGI_ROLE", sizeof("FCGI_ROLE") - 1);
	role->value = "RESPONDER";
	role->value_len = sizeof("RESPONDER") - 1;
	for (size_t i = 0; i < count; i++) {
		if (is_hidden(&sent[i])) {
			continue;
		}
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
	memset(newest, 0, sizeof(newest));
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
