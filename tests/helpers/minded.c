/*
 * An extension whose last step of a request relies on the first one, as in Xdebug and Excimer.
 */
#include <php.h>
#include <stdlib.h>

static int *begun;
static int ended;

static PHP_RINIT_FUNCTION(minded)
{
	begun = calloc(1, sizeof(*begun));
	return SUCCESS;
}

static zend_result after_request(void)
{
	*begun = 1;
	free(begun);
	begun = NULL;
	ended++;
	return SUCCESS;
}

ZEND_BEGIN_ARG_INFO(arginfo_none, 0)
ZEND_END_ARG_INFO()

PHP_FUNCTION(minded_ended)
{
	RETURN_LONG(ended);
}

static const zend_function_entry functions[] = {
	PHP_FE(minded_ended, arginfo_none)
	PHP_FE_END
};

static zend_module_entry minded_module_entry = {
	STANDARD_MODULE_HEADER,
	"minded",
	functions,
	NULL,
	NULL,
	PHP_RINIT(minded),
	NULL,
	NULL,
	"1",
	NO_MODULE_GLOBALS,
	after_request,
	STANDARD_MODULE_PROPERTIES_EX,
};

ZEND_GET_MODULE(minded)
