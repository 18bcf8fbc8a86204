/*
 * The response. PHP's output goes to the worker, which sends it over the link, or to the client
 * itself if it was lent the client's socket.
 *
 * A failed write ends the script by a long jump, unless the script called ignore_user_abort(). No
 * sendoff_ function is on the stack then.
 */
#include "php_sendoff.h"
#include "lazy.h"
#include "php_main.h"
#include "http_status_codes.h"
#include "zend_smart_str.h"

size_t sendoff_ub_write(const char *str, size_t len)
{
	if (!sendoff_php_worker || sendoff_boot.state == SENDOFF_BOOT_STARTS ||
		sendoff_boot.state == SENDOFF_BOOT_SETTLES) {
		return fwrite(str, 1, len, stderr);
	}
	if (!sendoff_php_finished && sendoff_write(sendoff_php_worker, str, len) < 0) {
		php_handle_aborted_connection();
		return 0;
	}
	return len;
}

void sendoff_sapi_flush(void *server_context)
{
	if (!server_context || sendoff_php_finished) {
		return;
	}
	if (FLUSH_SENDS_HEADERS) {
		sapi_send_headers();
	}
	if (sendoff_flush(sendoff_php_worker) < 0) {
		php_handle_aborted_connection();
	}
}

void sendoff_end_response(bool detach)
{
	if (!sendoff_php_finished) {
		lazy_output_end();
		sendoff_php_finished = true;
		sendoff_finish(sendoff_php_worker, EG(exit_status), detach);
	}
}

void sendoff_apply_error_header(void)
{
	char *line = sendoff_php_settings.error_header;
	if (EG(exit_status) == 255 && line && *line && !SG(headers_sent)) {
		sapi_header_line header = {.line = line, .line_len = strlen(line)};
		sapi_header_op(SAPI_HEADER_REPLACE, &header);
	}
}

static bool is_header(const sapi_header_struct *header, const char *name, size_t name_len)
{
	return header->header_len > name_len && !strncasecmp(header->header, name, name_len);
}

#define IS_HEADER(header, name) is_header(header, name, sizeof(name) - 1)

static bool has_status_header(sapi_headers_struct *headers)
{
	zend_llist_position at;
	sapi_header_struct *header = zend_llist_get_first_ex(&headers->headers, &at);
	while (header) {
		if (IS_HEADER(header, "Status:")) {
			return true;
		}
		header = zend_llist_get_next_ex(&headers->headers, &at);
	}
	return false;
}

static const char *reason_phrase(int code)
{
	for (const http_response_status_code_pair *known = http_status_map; known->code; known++) {
		if (known->code == code) {
			return known->str;
		}
	}
	return NULL;
}

static void append_code(smart_str *block, int code)
{
	const char *reason = reason_phrase(code);

	smart_str_appends(block, "Status: ");
	smart_str_append_long(block, code);
	if (reason) {
		smart_str_appendc(block, ' ');
		smart_str_appends(block, reason);
	}
}

/*
 * Appends the status line; `done` is false if the script has set a Status header, which follows
 * instead. Returns the status that clients see.
 */
static int append_status(smart_str *block, bool *done)
{
	const char *line = SG(sapi_headers).http_status_line;
	const char *space = line ? strchr(line, ' ') : NULL;
	int code = SG(sapi_headers).http_response_code;

	*done = true;
	if (line && sendoff_php_settings.rfc2616_headers) {
		smart_str_appends(block, line);
		code = space ? atoi(space + 1) : code;
	} else if (space && space - line >= 5 && !strncasecmp(line, "HTTP/", 5)) {
		smart_str_appends(block, "Status:");
		smart_str_appends(block, space);
		code = atoi(space + 1);
	} else if (has_status_header(&SG(sapi_headers))) {
		*done = false;
		return code;
	} else {
		append_code(block, code);
	}
	smart_str_appends(block, "\r\n");
	return code;
}

/*
 * Appends the headers that the script has set, and the empty line. `has_status`: the block has a
 * status already, so a Status header is left out.
 */
static void append_headers(smart_str *block, sapi_headers_struct *headers, int code,
						   bool has_status)
{
	zend_llist_position at;
	sapi_header_struct *header = zend_llist_get_first_ex(&headers->headers, &at);

	for (; header; header = zend_llist_get_next_ex(&headers->headers, &at)) {
		bool status = IS_HEADER(header, "Status:");
		/* An empty header would end the block. */
		if (header->header_len == 0 || (status && has_status) ||
			(code == 304 && IS_HEADER(header, "Content-Type:"))) {
			continue;
		}
		has_status |= status;
		smart_str_appendl(block, header->header, header->header_len);
		smart_str_appends(block, "\r\n");
	}
	smart_str_appends(block, "\r\n");
}

int sendoff_send_headers(sapi_headers_struct *headers)
{
	smart_str block = {0};
	bool status_done = false;
	int code = SG(sapi_headers).http_response_code;

	if (SG(request_info).no_headers || !sendoff_php_worker || sendoff_php_finished) {
		return SAPI_HEADER_SENT_SUCCESSFULLY;
	}
	smart_str_alloc(&block, 256, 0);
	if (sendoff_php_settings.nph || code != 200) {
		code = append_status(&block, &status_done);
	}
	append_headers(&block, headers, code, status_done);
	sendoff_named_send(headers);
	int sent = sendoff_write_head(sendoff_php_worker, ZSTR_VAL(block.s), ZSTR_LEN(block.s));
	smart_str_free(&block);
	if (sent < 0) {
		php_handle_aborted_connection();
	}
	return SAPI_HEADER_SENT_SUCCESSFULLY;
}

bool sendoff_send_interim(int status)
{
	smart_str block = {0};

	if (!sendoff_php_worker || sendoff_php_finished) {
		return false;
	}
	append_code(&block, status);
	smart_str_appends(&block, "\r\n");
	append_headers(&block, &SG(sapi_headers), status, true);
	int sent = sendoff_write_interim(sendoff_php_worker, ZSTR_VAL(block.s), ZSTR_LEN(block.s));
	smart_str_free(&block);
	if (sent < 0) {
		php_handle_aborted_connection();
	}
	return sent > 0;
}

/*
 * PHP calls this if error_log is not set, once per entry; a message and its trace are one entry.
 * During a request, including the time after the end of its response, the front gets the entry as
 * one record. Otherwise it goes to standard error, which is the server's log.
 */
void sendoff_log_message(const char *message, int syslog_type)
{
	(void)syslog_type;
	if (SG(server_context) && sendoff_php_settings.fcgi_logging) {
		sendoff_log(sendoff_php_worker, message, strlen(message));
	} else {
		fprintf(stderr, "%s\n", message);
	}
}
