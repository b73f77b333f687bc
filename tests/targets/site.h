/* Shared by all targets: functions with recognisable names that allocate,
 * and the truth about their outstanding blocks.
 *
 * SITE(name, expression) defines `site_name(p, a, b)`. It is two frames deep:
 * a frame-pointer walk that starts inside a library function without a frame
 * misses that function's direct caller, so the name is on the caller's caller
 * and both `call_name` and `site_name` are out of line.
 * Nothing here allocates: the truth is formatted on the stack and written by
 * write(2). */
#ifndef SITE_H
#define SITE_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define OUT_OF_LINE __attribute__((noipa))
#define BARRIER() __asm__ volatile("" ::: "memory")

struct truth {
	const char *name;
	long live_bytes, live_count, alloc_bytes, alloc_count;
};

/* Pointers, because a section of structs may be padded between its elements. */
#define TRUTH(name)                                                                                \
	static struct truth truth_##name = {#name, 0, 0, 0, 0};                                    \
	__attribute__((section("truths"), used)) static struct truth *truth_at_##name = &truth_##name;

#define SITE_FUNCTION(name, expression)                                                            \
	OUT_OF_LINE static void *call_##name(void *p, size_t a, size_t b) {                        \
		(void)p, (void)a, (void)b;                                                         \
		void *result = (void *)(expression);                                               \
		BARRIER();                                                                         \
		return result;                                                                     \
	}                                                                                          \
	OUT_OF_LINE static void *site_##name(void *p, size_t a, size_t b) {                        \
		void *result = call_##name(p, a, b);                                               \
		BARRIER();                                                                         \
		return result;                                                                     \
	}

#define SITE(name, expression) TRUTH(name) SITE_FUNCTION(name, expression)

/* An outstanding block, who allocated it and where. */
struct block {
	void *p;
	long size;
	struct truth *site;
	pid_t owner;
};

/* Inherited bytes (at fork) that this process freed. */
static long inherited_freed;

__attribute__((unused)) static struct block take(struct truth *site, void *p, long size) {
	struct block block = {p, size, site, getpid()};
	if (p) {
		__atomic_add_fetch(&site->live_bytes, size, __ATOMIC_RELAXED);
		__atomic_add_fetch(&site->live_count, 1, __ATOMIC_RELAXED);
		__atomic_add_fetch(&site->alloc_bytes, size, __ATOMIC_RELAXED);
		__atomic_add_fetch(&site->alloc_count, 1, __ATOMIC_RELAXED);
	}
	return block;
}

/* The block is about to be (or was) released. */
__attribute__((unused)) static void *give(struct block *block) {
	void *p = block->p;
	if (p && block->owner == getpid()) {
		__atomic_sub_fetch(&block->site->live_bytes, block->size, __ATOMIC_RELAXED);
		__atomic_sub_fetch(&block->site->live_count, 1, __ATOMIC_RELAXED);
	} else if (p) {
		inherited_freed += block->size;
	}
	block->p = NULL;
	return p;
}

#define ALLOCATE(name, p, a, b, size) take(&truth_##name, site_##name(p, a, b), size)

extern struct truth *__start_truths[], *__stop_truths[];

/* In a forked child: it has allocated nothing yet. */
__attribute__((unused)) static void forget_truth(void) {
	for (struct truth **t = __start_truths; t < __stop_truths; t++)
		(*t)->live_bytes = (*t)->live_count = (*t)->alloc_bytes = (*t)->alloc_count = 0;
	inherited_freed = 0;
}

__attribute__((unused)) static void fail(const char *what) {
	char text[256];
	int n = snprintf(text, sizeof text, "target: %s failed\n", what);
	if (write(2, text, n) != n)
		_exit(99);
	_exit(98);
}

__attribute__((unused)) static void write_all(int fd, const char *text, size_t n) {
	if (write(fd, text, n) != (ssize_t)n)
		fail("write");
}

/* One JSON line per site that ever allocated, appended in one write each. */
__attribute__((unused)) static void write_truth(const char *path) {
	char line[512];
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
	if (fd < 0)
		fail("open of the truth file");
	for (struct truth **at = __start_truths; at < __stop_truths; at++) {
		struct truth *t = *at;
		if (!t->alloc_count)
			continue;
		int n = snprintf(line, sizeof line,
				 "{\"tgid\":%d,\"site\":\"%s\",\"live_bytes\":%ld,\"live_count\":%ld,"
				 "\"alloc_bytes\":%ld,\"alloc_count\":%ld}\n",
				 getpid(), t->name, t->live_bytes, t->live_count, t->alloc_bytes,
				 t->alloc_count);
		write_all(fd, line, n);
	}
	close(fd);
}

/* A library of `folder`, whose functions others find too. */
__attribute__((unused)) static void *load_library(const char *folder, const char *name) {
	char path[4096];
	snprintf(path, sizeof path, "%s/%s", folder, name);
	void *handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!handle)
		fail(dlerror());
	return handle;
}

/* Hand-shakes with the test: one line out, one byte (or the end) in. */
__attribute__((unused)) static void say(const char *line) { write_all(1, line, strlen(line)); }
__attribute__((unused)) static void await_byte(void) {
	char byte;
	while (read(0, &byte, 1) < 0)
		;
}
#endif
