/*
 * Worker mode: the pool's script boots the application once, and takes requests one after the other
 * by sendoff_handle_request().
 *
 * boot.c    the script's life, and that of each request
 * renew.c   PHP's own state, made new for each request
 * kept.c    the application's state, put back after each request
 */
#ifndef SENDOFF_BOOT_H
#define SENDOFF_BOOT_H

#include "php_sendoff.h"

/* renew.c */

/* While the script boots, no session starts by session.auto_start. */
void sendoff_boot_no_session(bool booting);

/* Ends the state of the script's start, so that requests may begin. */
void sendoff_renew_after_boot(void);

/* A request has come, and its parameters are loaded. May end by a long jump, as PHP's own start. */
void sendoff_renew_before(void);

/*
 * Ends a request as PHP does, up to the end of its response. May end by a long jump, or leave an
 * exception: then false is returned, and the script must end.
 */
bool sendoff_renew_after(void);

/* kept.c */

/* Notes the application's state before a request. */
void sendoff_kept_before(void);

/* Puts it back. */
void sendoff_kept_after(void);

/*
 * The script ends within a request, so that the application's shutdown functions run, too, before
 * those of the request.
 */
void sendoff_kept_join(void);

/* Takes the session handlers of the application out of the session module, before it ends. */
void sendoff_kept_session_handlers(void);

/* Gives them to the session module, which has started again. */
void sendoff_kept_use_session_handlers(void);

#endif /* SENDOFF_BOOT_H */
