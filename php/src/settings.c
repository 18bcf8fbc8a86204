/*
 * Settings of the operator in addition to php.ini: checks whether PHP knows them and whether their
 * values are valid, and fixes those that scripts may not change.
 */
#include "php_sendoff.h"
#include "php_ini.h"

/* Settings in bytes whose handler is neither OnUpdateLong nor OnUpdateLongGEZero. */
static const char *const quantities[] = {"memory_limit", "opcache.memory_consumption"};

static bool is_quantity(const zend_ini_entry *entry)
{
	if (entry->on_modify == OnUpdateLong || entry->on_modify == OnUpdateLongGEZero) {
		return true;
	}
	for (size_t i = 0; i < sizeof(quantities) / sizeof(quantities[0]); i++) {
		if (zend_string_equals_cstr(entry->name, quantities[i], strlen(quantities[i]))) {
			return true;
		}
	}
	return false;
}

static bool is_switch_position(const zend_string *value)
{
	static const char *const words[] = {"", "on", "off", "yes", "no", "true", "false"};
	char *rest;

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		if (!strcasecmp(ZSTR_VAL(value), words[i])) {
			return true;
		}
	}
	php_ignore_value(strtol(ZSTR_VAL(value), &rest, 10));
	return *rest == '\0';
}

/* True if the value suits the type of the setting. Prints a message if it does not. */
static bool makes_sense(const zend_ini_entry *entry, zend_string *value)
{
	zend_string *why = NULL;

	if (entry->on_modify == OnUpdateBool && !is_switch_position(value)) {
		fprintf(stderr, "sendoff-php: the PHP setting %s=%s makes no sense: expected On or Off\n",
				ZSTR_VAL(entry->name), ZSTR_VAL(value));
		return false;
	}
	if (!is_quantity(entry)) {
		return true;
	}
	zend_ini_parse_quantity(value, &why);
	if (!why) {
		return true;
	}
	fprintf(
		stderr,
		"sendoff-php: the PHP setting %s=%s makes no sense: expected a number, as 1000 or 128M\n",
		ZSTR_VAL(entry->name), ZSTR_VAL(value));
	zend_string_release(why);
	return false;
}

/* Settings that load extensions; PHP does not list them among the directives. */
static bool is_load(const char *name, size_t len)
{
	return (len == strlen("extension") && !strncmp(name, "extension", len)) ||
		   (len == strlen("zend_extension") && !strncmp(name, "zend_extension", len));
}

/*
 * Checks a setting KEY=VALUE. False if its value is invalid; an unknown or refused setting only
 * gets a warning.
 */
static bool check(const char *define)
{
	size_t len = strcspn(define, "=");
	const zend_ini_entry *entry = zend_hash_str_find_ptr(EG(ini_directives), define, len);
	const zval *wanted = cfg_get_entry(define, len);

	if (!entry) {
		if (!is_load(define, len)) {
			fprintf(stderr,
					"sendoff-php: PHP and its extensions know no setting %.*s: it has no effect\n",
					(int)len, define);
		}
		return true;
	}
	if (!wanted || Z_TYPE_P(wanted) != IS_STRING) {
		return true;
	}
	if (!makes_sense(entry, Z_STR_P(wanted))) {
		return false;
	}
	if (!entry->value || !zend_string_equals(entry->value, Z_STR_P(wanted))) {
		fprintf(stderr, "sendoff-php: PHP does not take the setting %s=%s: it is %s\n",
				ZSTR_VAL(entry->name), Z_STRVAL_P(wanted),
				entry->value ? ZSTR_VAL(entry->value) : "not set");
	}
	return true;
}

bool sendoff_settings_check(const sendoff_php_start *start)
{
	bool good = true;
	for (size_t i = 0; i < start->define_count; i++) {
		good &= check(start->defines[i]);
	}
	return good;
}

/*
 * Makes settings changeable by the system only, so that ini_set() and .user.ini have no effect on
 * them (php-fpm: php_admin_value).
 */
void sendoff_settings_fix(const sendoff_php_start *start)
{
	for (size_t i = 0; i < start->fixed_count; i++) {
		zend_ini_entry *entry =
			zend_hash_str_find_ptr(EG(ini_directives), start->fixed[i], strlen(start->fixed[i]));
		if (entry) {
			entry->modifiable = ZEND_INI_SYSTEM;
		}
	}
}
