/*
 * A FastCGI application on libsendoff, for any web server:
 *
 *     page /run/page.sock &
 *     sendoff serve ROOT --fastcgi /page=unix:/run/page.sock
 *
 * Each request is answered with its parameters and its body.
 */
#include <sendoff.h>
#include <stdio.h>
#include <string.h>

/* Whether the response is whole. */
static int answer(sendoff_worker *worker)
{
	static const char head[] = "Status: 200 OK\r\nContent-Type: text/plain\r\n\r\n";
	char body[16384];
	size_t count;
	ssize_t n;
	const sendoff_param *params = sendoff_params(worker, &count);

	sendoff_write_head(worker, head, strlen(head));
	for (size_t i = 0; i < count; i++) {
		sendoff_write(worker, params[i].name, params[i].name_len);
		sendoff_write(worker, " = ", 3);
		sendoff_write(worker, params[i].value, params[i].value_len);
		sendoff_write(worker, "\n", 1);
	}
	while ((n = sendoff_read(worker, body, sizeof(body))) > 0) {
		sendoff_write(worker, body, (size_t)n);
	}
	return n == 0;
}

int main(int argc, char **argv)
{
	/* Descriptor 0 is a listening socket if a web server has started the program. */
	int listener = argc > 1 ? sendoff_listen(argv[1], 128) : 0, connection;

	if (listener < 0) {
		perror(argv[1]);
		return 1;
	}
	while ((connection = sendoff_accept_connection(listener, NULL)) >= 0) {
		sendoff_worker *worker = sendoff_worker_on(connection, SENDOFF_RESPONDER);

		int whole = 1;

		/* sendoff_accept() also ends the response to the previous request. */
		while (sendoff_accept(worker) == 1 && (whole = answer(worker))) {
		}
		/* Without its end a client does not take a response for a whole one. */
		(whole ? sendoff_worker_close : sendoff_worker_free)(worker);
	}
	return 1;
}
