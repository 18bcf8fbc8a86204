/*
 * Worker mode: the pool's script boots the application once, and takes requests one after the other
 * by sendoff_handle_request().
 *
 * boot.c    the life of the script and of each request
 * renew.c   PHP's own state, renewed for each request
 * modules.c the state of extensions, renewed for each request or kept
 * kept.c    the application's state, restored after each request
 */
#ifndef SENDOFF_BOOT_H
#define SENDOFF_BOOT_H

#include "php_sendoff.h"

/* renew.c */

/* While the script boots, session.auto_start has no effect. */
void sendoff_boot_no_session(bool booting);

/* Ends the state of the script's start, so that requests can begin. */
void sendoff_renew_after_boot(void);

/* Forgets small things that the last request has left, or the script's own work since then. */
void sendoff_renew_between(void);

/* Starts a request whose parameters are loaded. May end by a long jump, as PHP's own start. */
void sendoff_renew_before(void);

/*
 * Ends a request as PHP does, up to the end of its response. May end by a long jump, or leave an
 * exception: then false is returned, and the script must end.
 */
bool sendoff_renew_after(void);

/* modules.c */

/* The extension of this name; NULL: it is not loaded. */
zend_module_entry *sendoff_module(const char *name);

/* Notes which extensions there are, and the settings that the application has made in them. */
void sendoff_modules_keep(void);

/* Start and end the extensions whose state begins and ends with a request. */
void sendoff_modules_start(void);
void sendoff_modules_end(void);

/* Drops the state of renewed extensions, except these settings. */
void sendoff_modules_renew(void);

/* Has mbstring take its encodings from PHP's settings again, which are restored next. */
void sendoff_modules_follow_settings(void);

/* Restores these settings. */
void sendoff_modules_restore(void);

/* kept.c */

/* Notes the application's state before a request. */
void sendoff_kept_before(void);

/* Restores the application's state after a request. */
void sendoff_kept_after(void);

/*
 * Called when the script ends within a request: also runs the application's shutdown functions,
 * before the request's.
 */
void sendoff_kept_join(void);

/* Takes the application's session handlers out of the session module, before the module ends. */
void sendoff_kept_session_handlers(void);

/* Returns the session handlers to the session module, which has started again. */
void sendoff_kept_use_session_handlers(void);

#endif /* SENDOFF_BOOT_H */
