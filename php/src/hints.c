/*
 * headers_send(int $status = 200): int, by which a script sends its headers before its output. With
 * a status of 1xx, such as 103 (Early Hints), they leave as an interim response: the script goes
 * on, keeps its headers, and answers later. FrankenPHP has the same function, and frameworks
 * (Symfony) look for it.
 */
#include "lazy.h"

#include "SAPI.h"

bool (*hints_send)(int status);

/* Sends the headers with this status as the headers of the final response. */
static int send_final(int status)
{
	if (!SG(headers_sent)) {
		if (SG(sapi_headers).http_status_line) {
			efree(SG(sapi_headers).http_status_line);
			SG(sapi_headers).http_status_line = NULL;
		}
		SG(sapi_headers).http_response_code = status;
	}
	return sapi_send_headers();
}

PHP_FUNCTION(headers_send)
{
	zend_long status = 200;

	ZEND_PARSE_PARAMETERS_START(0, 1)
	Z_PARAM_OPTIONAL
	Z_PARAM_LONG(status)
	ZEND_PARSE_PARAMETERS_END();

	if (status < 100 || status > 999 || status == 101) {
		zend_argument_value_error(1, "must be a status from 100 to 999 other than 101");
		RETURN_THROWS();
	}
	if (status >= 200) {
		RETURN_LONG(send_final((int)status));
	}
	/* The server itself sends 100. */
	bool may = hints_send && status != 100 && !SG(headers_sent) && !SG(request_info).no_headers;
	bool sent = may && hints_send((int)status);
	RETURN_LONG(sent ? SAPI_HEADER_SENT_SUCCESSFULLY : SAPI_HEADER_SEND_FAILED);
}
