/*
 * Fragments: parts of pages that one worker makes and all workers of the pool send.
 *
 * fragment.c       the functions for scripts
 * fragment_make.c  who makes a fragment, and who waits for it
 * fragment_send.c  how a kept fragment is sent
 * fragments.c      the memory that the workers share
 */
#ifndef SENDOFF_FRAGMENTS_H
#define SENDOFF_FRAGMENTS_H

#include "php_sendoff.h"

/* A fragment has at most this many tags. */
#define FRAGMENT_TAGS 64

typedef struct {
	/* The site's folder and the script's name for the fragment, so that sites of a pool differ. */
	zend_string *text;
	zend_ulong hash;
} fragment_key;

/* A fragment that was looked up. */
typedef struct {
	/* Its place, which no other fragment ever has; 0: there is none. */
	uint64_t at;
	size_t len;
	/* False: its time is over, and it may be sent only while a new one is made. */
	bool is_fresh;
	/* There is none, because the last one could not be kept: it makes no sense to wait for one. */
	bool is_refused;
} fragment_found;

/* The counters of purges that concern a fragment, and their values when it was begun. */
typedef struct {
	uint32_t count;
	uint32_t counters[FRAGMENT_TAGS + 2];
	uint64_t seen[FRAGMENT_TAGS + 2];
} fragment_labels;

typedef enum {
	/* This process may make the fragment. It holds the seat until fragments_release(). */
	FRAGMENT_TAKEN,
	/* The process that holds the seat makes it. */
	FRAGMENT_BUSY,
	/* All seats are taken, or this process holds one for the same fragment. */
	FRAGMENT_NO_SEAT,
} fragment_permit;

/* Makes the memory in the master. 0 bytes, or an error: no fragment is ever kept. */
void fragments_startup(zend_long size);

bool fragments_are_on(void);

/* Milliseconds of a clock that is never set. */
int64_t fragments_now(void);

/* False: there is none, and `found->at` is 0. */
bool fragments_find(const fragment_key *key, fragment_found *found);

/* Copies a fragment to `to`. False: another one has taken its place. */
bool fragments_copy(const fragment_key *key, const fragment_found *found, char *to);

/* Notes the purges so far that concern a key and tags, whose elements are strings. */
void fragments_label(fragment_labels *labels, const fragment_key *key, HashTable *tags);

/* The number of all purges so far. */
uint64_t fragments_purges(void);

/* Keeps bytes for `ttl` > 0 seconds. False: they do not fit, or were purged while they were made.
 */
bool fragments_store(const fragment_key *key, const fragment_labels *labels, zend_long ttl,
					 const char *bytes, size_t len);

/* Notes that a fragment could not be kept. */
void fragments_refuse(const fragment_key *key, const fragment_labels *labels, zend_long ttl);

/* Purges all fragments with this tag, or with this text as their key; NULL: everything. */
void fragments_purge(const zend_string *tag);

/* Asks for the permit to make a fragment. */
fragment_permit fragments_take(const fragment_key *key, int *seat);

/* Waits until the holder of a seat has left it or has died. False: it is too late. */
bool fragments_wait(int seat, const fragment_key *key, int64_t deadline);

void fragments_release(int seat);

/* At the end of a request: leaves all seats, such as the seats of fibers that never went on. */
void fragments_release_all(void);

/* fragment.c */
PHP_FUNCTION(sendoff_fragment);
PHP_FUNCTION(sendoff_fragment_string);
PHP_FUNCTION(sendoff_fragment_fetch);
PHP_FUNCTION(sendoff_fragment_store);
PHP_FUNCTION(sendoff_fragment_delete);
PHP_FUNCTION(sendoff_fragment_purge);

/* fragment_make.c */

/* Arguments of the functions. */
typedef struct {
	zend_string *name;
	zend_long ttl;
	/* The function that makes the fragment keeps it itself. */
	bool keeps_itself;
	zend_fcall_info call;
	zend_fcall_info_cache cache;
	HashTable *tags;
} fragment_call;

void fragment_startup(void);

/* The caller frees the key. */
fragment_key fragment_key_of(const zend_string *name);

void fragment_key_free(const fragment_key *key);

/* False: the key is too long for a fragment that is kept. */
bool fragment_key_fits(const fragment_key *key);

/* Serves a call; the fragment goes to the output if `result` is NULL. */
void fragment_serve(fragment_call *args, zval *result);

/* True if there was a purge since the outermost fragment that is being made was begun: the purge
 * may concern tags that were not known then. */
bool fragment_is_doubtful(void);

/* fragment_send.c */

/* Gives a kept fragment, as output, or as a string if `result` is not NULL. False: it is not there
 * any more. */
bool fragment_give(const fragment_key *key, const fragment_found *found, zval *result);

/* The request has ended: blobs that it has sent may be replaced. */
void fragment_next_request(void);

#endif /* SENDOFF_FRAGMENTS_H */
