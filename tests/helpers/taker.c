/*
 * A zend_extension that acts after PHP's start, as monitoring modules do. MODE: what it does then.
 */
#include <php.h>
#include <zend_extensions.h>
#include <unistd.h>

#define ENDS 1
#define STAYS 2
#define GOES_ON 3

static zend_result (*before)(void);

static zend_result after_start(void)
{
#if MODE == ENDS
	_exit(0);
#elif MODE == STAYS
	for (;;) {
		pause();
	}
#endif
	return before ? before() : SUCCESS;
}

static int start(zend_extension *self)
{
	before = zend_post_startup_cb;
	zend_post_startup_cb = after_start;
	return SUCCESS;
}

ZEND_DLEXPORT zend_extension_version_info extension_version_info = {
	ZEND_EXTENSION_API_NO,
	ZEND_EXTENSION_BUILD_ID,
};

ZEND_DLEXPORT zend_extension zend_extension_entry = {
	.name = "Taker",
	.version = "1",
	.author = "",
	.URL = "",
	.copyright = "",
	.startup = start,
};
