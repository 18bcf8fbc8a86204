/*
 * The memory of fragments. The master maps it before it forks workers, so each pool has its own,
 * and a worker finds it at the same address as all others. The master itself never reads it, and
 * the front has only the counters of purges: what a worker writes here can hurt no other pool.
 *
 *   slots   a hash table of places in the log
 *   log     fragments, one behind the other; at the end it begins anew over the oldest ones
 *   seats   permits: who makes a fragment holds a seat, others wait for the seat
 *
 * A place is the number of bytes written to the log before it, so no two fragments ever have the
 * same one, and a fragment has been overwritten once the log is a whole size ahead of it.
 *
 * Locks are robust mutexes: the kernel releases them when their owner dies. If it died while it
 * changed the table, all fragments are forgotten. If it died while it made a fragment, another
 * process makes it. No lock is held while PHP code runs, memory is allocated or output is written.
 */
#include "fragments.h"

#include <pthread.h>
#include <sys/mman.h>
#include <time.h>

/* Fragments that can be found; a power of two. */
#define SLOTS 4096
/* Slots in which a fragment may stand. */
#define PROBES 8
/* Fragments that can be made at a time with others waiting for them. */
#define SEATS 128
/* The largest fragment, in bytes: copying it takes the lock for 0.1 ms. */
#define LARGEST ((size_t)1 << 20)
/* Bounds of the size of the log. Several fragments of the largest size fit. */
#define LOG_MIN ((zend_long)8 << 20)
#define LOG_MAX ((zend_long)1 << 32)
/* Longest wait for the table, in ms: a stopped process may hold it. */
#define TABLE_WAIT 100
/* An old fragment is sent for at most this time while a new one is made, in ms. */
#define STALE_MAX 60000
/* A fragment that could not be kept is made without waiting for at most this time, in ms. */
#define REFUSED_MAX 10000
/* Ten years, in seconds. */
#define TTL_MAX ((zend_long)10 * 365 * 86400)

/* sendoff_sys::purges: the numbers of the first two counters. */
#define COUNTER_TOTAL 0
#define COUNTER_EVERYTHING 1

/* purges.rs */
uint64_t *sendoff_purges_open(void);
uint32_t sendoff_purges_counter(const char *tag, size_t len);

typedef struct {
	zend_ulong hash;
	/* 0: the slot is free. */
	uint64_t at;
} slot;

typedef struct {
	pthread_mutex_t held;
	/* Hash of the key whose fragment its holder makes; 0: none. Changed under the table's lock. */
	zend_ulong hash;
} seat;

/* The beginning of a fragment in the log; the key and the bytes follow. */
typedef struct {
	int64_t fresh_until;
	int64_t stale_until;
	/* The fragment could not be kept: no bytes follow. */
	bool is_refused;
	size_t key_len;
	size_t len;
	fragment_labels labels;
} record;

typedef struct {
	pthread_mutex_t lock;
	/* Bytes written to the log so far. Begins with its size, so that no place is 0. */
	uint64_t written;
	uint64_t size;
	slot slots[SLOTS];
	seat seats[SEATS];
} shared;

static shared *memory;
static char *log_bytes;
static uint64_t *counters;
/* The seats that this process holds. */
static bool holds[SEATS];

bool fragments_are_on(void)
{
	return memory != NULL;
}

static int64_t milliseconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t fragments_now(void)
{
	return milliseconds(CLOCK_MONOTONIC);
}

static bool make_lock(pthread_mutex_t *lock)
{
	pthread_mutexattr_t kind;

	pthread_mutexattr_init(&kind);
	bool made = pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED) == 0 &&
				pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST) == 0 &&
				pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK) == 0 &&
				pthread_mutex_init(lock, &kind) == 0;
	pthread_mutexattr_destroy(&kind);
	return made;
}

static bool make_locks(shared *made)
{
	bool all = make_lock(&made->lock);

	for (int i = 0; all && i < SEATS; i++) {
		all = make_lock(&made->seats[i].held);
	}
	return all;
}

void fragments_startup(zend_long size)
{
	if (size < LOG_MIN || size > LOG_MAX || memory) {
		return;
	}
	size_t head = ZEND_MM_ALIGNED_SIZE_EX(sizeof(shared), 4096), all = head + (size_t)size;
	/* Pages cost nothing until they are used. */
	shared *made =
		mmap(NULL, all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (made == MAP_FAILED) {
		return;
	}
	counters = sendoff_purges_open();
	if (!counters || !make_locks(made)) {
		munmap(made, all);
		return;
	}
	made->size = (uint64_t)size;
	made->written = made->size;
	log_bytes = (char *)made + head;
	memory = made;
}

/* Locks `lock` before `deadline`. Returns the result of pthread_mutex_clocklock(3). */
static int lock_until(pthread_mutex_t *lock, int64_t deadline)
{
	struct timespec until = {.tv_sec = (time_t)(deadline / 1000),
							 .tv_nsec = (long)(deadline % 1000) * 1000000};
	int result = pthread_mutex_trylock(lock);

	return result == EBUSY ? pthread_mutex_clocklock(lock, CLOCK_MONOTONIC, &until) : result;
}

/* Locks the table. False: a stopped process holds it. */
static bool lock(void)
{
	int result = memory ? lock_until(&memory->lock, fragments_now() + TABLE_WAIT) : EINVAL;

	if (result == EOWNERDEAD) {
		memset(memory->slots, 0, sizeof(memory->slots));
		result = pthread_mutex_consistent(&memory->lock);
	}
	return result == 0;
}

static void unlock(void)
{
	pthread_mutex_unlock(&memory->lock);
}

static uint64_t counter(uint32_t number)
{
	return __atomic_load_n(&counters[number], __ATOMIC_SEQ_CST);
}

uint64_t fragments_purges(void)
{
	return counter(COUNTER_TOTAL);
}

static uint32_t counter_of(const zend_string *tag)
{
	return sendoff_purges_counter(ZSTR_VAL(tag), ZSTR_LEN(tag));
}

/* The total comes first, as in sendoff_sys::purges. */
void fragments_purge(const zend_string *tag)
{
	uint32_t number = tag ? counter_of(tag) : COUNTER_EVERYTHING;

	__atomic_fetch_add(&counters[COUNTER_TOTAL], 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&counters[number], 1, __ATOMIC_SEQ_CST);
}

static void add_label(fragment_labels *labels, uint32_t number)
{
	labels->counters[labels->count] = number;
	labels->seen[labels->count++] = counter(number);
}

void fragments_label(fragment_labels *labels, const fragment_key *key, HashTable *tags)
{
	zval *tag;

	labels->count = 0;
	add_label(labels, COUNTER_EVERYTHING);
	add_label(labels, counter_of(key->text));
	if (tags) {
		ZEND_HASH_FOREACH_VAL(tags, tag)
		{
			add_label(labels, counter_of(Z_STR_P(tag)));
		}
		ZEND_HASH_FOREACH_END();
	}
}

static bool is_purged(const fragment_labels *labels)
{
	for (uint32_t i = 0; i < labels->count; i++) {
		if (counter(labels->counters[i]) != labels->seen[i]) {
			return true;
		}
	}
	return false;
}

/* The fragment at this place; NULL: it has been overwritten, or there is none. */
static record *record_at(uint64_t at)
{
	return at && at + memory->size >= memory->written ? (record *)(log_bytes + at % memory->size)
													  : NULL;
}

static const char *bytes_of(const record *one)
{
	return (const char *)(one + 1) + one->key_len;
}

/* The slot of a key's fragment; NULL: there is none. */
static slot *slot_of(const fragment_key *key)
{
	for (size_t i = 0; i < PROBES; i++) {
		slot *one = &memory->slots[(key->hash + i) % SLOTS];
		record *kept = one->hash == key->hash ? record_at(one->at) : NULL;

		if (kept && kept->key_len == ZSTR_LEN(key->text) &&
			memcmp(kept + 1, ZSTR_VAL(key->text), kept->key_len) == 0) {
			return one;
		}
	}
	return NULL;
}

bool fragments_find(const fragment_key *key, fragment_found *found)
{
	int64_t now = fragments_now();

	*found = (fragment_found){0};
	if (!lock()) {
		return false;
	}
	slot *one = slot_of(key);
	record *kept = one ? record_at(one->at) : NULL;
	if (kept && (kept->stale_until <= now || is_purged(&kept->labels))) {
		one->at = 0;
	} else if (kept && kept->is_refused) {
		found->is_refused = true;
	} else if (kept) {
		*found =
			(fragment_found){.at = one->at, .len = kept->len, .is_fresh = kept->fresh_until > now};
	}
	unlock();
	return found->at != 0;
}

bool fragments_copy(const fragment_key *key, const fragment_found *found, char *to)
{
	bool is_there = false;

	if (!lock()) {
		return false;
	}
	slot *one = slot_of(key);
	if (one && one->at == found->at) {
		memcpy(to, bytes_of(record_at(one->at)), found->len);
		is_there = true;
	}
	unlock();
	return is_there;
}

/* The slot for a new fragment: the key's own, a free one, or the one with the oldest fragment. */
static slot *slot_for(const fragment_key *key)
{
	slot *best = slot_of(key);

	for (size_t i = 0; !best && i < PROBES; i++) {
		slot *one = &memory->slots[(key->hash + i) % SLOTS];
		best = record_at(one->at) ? NULL : one;
	}
	if (!best) {
		best = &memory->slots[key->hash % SLOTS];
		for (size_t i = 1; i < PROBES; i++) {
			slot *one = &memory->slots[(key->hash + i) % SLOTS];
			best = one->at < best->at ? one : best;
		}
	}
	return best;
}

/* Room for `len` bytes in the log, which do not pass its end. */
static uint64_t allocate(size_t len)
{
	uint64_t left = memory->size - memory->written % memory->size;

	if (len > left) {
		memory->written += left;
	}
	uint64_t at = memory->written;
	memory->written += len;
	return at;
}

/* Writes a record, whose bytes may not be more than LARGEST. False: it was purged. */
static bool put(const fragment_key *key, record made, const char *bytes)
{
	made.key_len = ZSTR_LEN(key->text);
	if (!memory || is_purged(&made.labels) || !lock()) {
		return false;
	}
	slot *one = slot_for(key);
	one->at = 0;
	uint64_t at = allocate(ZEND_MM_ALIGNED_SIZE_EX(sizeof(record) + made.key_len + made.len, 16));
	record *kept = record_at(at);
	*kept = made;
	memcpy(kept + 1, ZSTR_VAL(key->text), made.key_len);
	memcpy((char *)(kept + 1) + made.key_len, bytes, made.len);
	*one = (slot){.hash = key->hash, .at = at};
	unlock();
	return true;
}

bool fragments_store(const fragment_key *key, const fragment_labels *labels, zend_long ttl,
					 const char *bytes, size_t len)
{
	int64_t time = MIN(ttl, TTL_MAX) * 1000, until = fragments_now() + time;
	record made = {.fresh_until = until,
				   .stale_until = until + MIN(time, STALE_MAX),
				   .len = len,
				   .labels = *labels};

	if (len > LARGEST) {
		fragments_refuse(key, labels, ttl);
		return false;
	}
	return put(key, made, bytes);
}

void fragments_refuse(const fragment_key *key, const fragment_labels *labels, zend_long ttl)
{
	int64_t until = fragments_now() + MIN(ttl, REFUSED_MAX / 1000) * 1000;
	fragment_found found;

	/* One record per page would take the place of fragments. */
	fragments_find(key, &found);
	if (!found.is_refused) {
		put(key, (record){.stale_until = until, .is_refused = true, .labels = *labels}, "");
	}
}

/* Locks a seat if no process holds it. The table is locked. */
static bool take_seat(int number, zend_ulong hash)
{
	pthread_mutex_t *held = &memory->seats[number].held;
	int result = holds[number] ? EBUSY : pthread_mutex_trylock(held);

	if (result == EOWNERDEAD) {
		result = pthread_mutex_consistent(held);
	}
	if (result != 0) {
		return false;
	}
	memory->seats[number].hash = hash;
	holds[number] = true;
	return true;
}

/* The seat of the process that makes a fragment with this hash, or has died meanwhile; -1: none. */
static int seat_of(zend_ulong hash)
{
	for (int i = 0; i < SEATS; i++) {
		if (memory->seats[i].hash == hash) {
			return i;
		}
	}
	return -1;
}

fragment_permit fragments_take(const fragment_key *key, int *seat)
{
	fragment_permit permit = FRAGMENT_NO_SEAT;

	*seat = -1;
	if (!lock()) {
		return permit;
	}
	int known = seat_of(key->hash);
	for (int i = known < 0 ? 0 : known; i < (known < 0 ? SEATS : known + 1) && *seat < 0; i++) {
		*seat = take_seat(i, key->hash) ? i : -1;
	}
	if (*seat >= 0) {
		permit = FRAGMENT_TAKEN;
	} else if (known >= 0 && !holds[known]) {
		*seat = known;
		permit = FRAGMENT_BUSY;
	}
	unlock();
	return permit;
}

bool fragments_wait(int seat, const fragment_key *key, int64_t deadline)
{
	pthread_mutex_t *held = &memory->seats[seat].held;
	int result = lock_until(held, deadline);

	if (result == EOWNERDEAD) {
		result = pthread_mutex_consistent(held);
	}
	if (result != 0) {
		return false;
	}
	/* Its holder has died: a holder that leaves removes its name first. */
	if (lock()) {
		if (memory->seats[seat].hash == key->hash) {
			memory->seats[seat].hash = 0;
		}
		unlock();
	}
	pthread_mutex_unlock(held);
	return true;
}

void fragments_release(int seat)
{
	if (seat < 0 || !holds[seat]) {
		return;
	}
	holds[seat] = false;
	if (lock()) {
		memory->seats[seat].hash = 0;
		unlock();
	}
	/* Fails in a child of the process that has taken it. */
	pthread_mutex_unlock(&memory->seats[seat].held);
}

void fragments_release_all(void)
{
	for (int i = 0; memory && i < SEATS; i++) {
		fragments_release(i);
	}
}
