#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "probe.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, STACKS = 2048, FRAMES = 4096, MODULES = 64 };

/* One byte of code, as a file has it: of a call, not of the next instruction. */
struct frame {
	unsigned long module, offset;
};

struct stack {
	enum way way;
	char path[96]; /* a copy: libraries go */
	unsigned long count, size, frames;
	unsigned long first; /* in `frames` */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stack stacks[STACKS];
static struct frame frames[STACKS * 32];
static unsigned long stack_count, frame_count;
static char modules[MODULES][512];
static char maps[1 << 18];
/* In a thread's own storage: on the stack it would be part of the walk. */
static __thread struct frame walked[FRAMES];
static int walking = 1;

void broken(const char *what) {
	static const char start[] = "target: ";
	if (write(2, start, sizeof start - 1) < 0 || write(2, what, strlen(what)) < 0 ||
	    write(2, "\n", 1) < 0)
		_exit(97);
	_exit(98);
}

static unsigned long module_of(const char *path, size_t length) {
	for (unsigned long i = 0; i < MODULES && length < sizeof *modules; i++) {
		if (!*modules[i])
			memcpy(modules[i], path, length);
		if (strlen(modules[i]) == length && !memcmp(modules[i], path, length))
			return i;
	}
	broken("too many modules");
	return 0;
}

static void read_maps(void) {
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	size_t used = 0;
	ssize_t got;
	while ((got = read(fd, maps + used, sizeof maps - 1 - used)) > 0)
		used += got;
	close(fd);
	maps[used] = 0;
	if (fd < 0 || used == sizeof maps - 1)
		broken("cannot read its mappings");
}

/* Looks an address up in `maps`. */
static struct frame locate(unsigned long address) {
	for (const char *line = maps; *line; line = strchr(line, '\n') + 1) {
		char *at;
		unsigned long start = strtoul(line, &at, 16), end = strtoul(at + 1, &at, 16);
		if (address < start || address >= end)
			continue;
		unsigned long offset = strtoul(at + sizeof " r-xp", NULL, 16);
		const char *name = at + strcspn(at, "/[\n");
		struct frame frame = {module_of(name, strcspn(name, "\n")), address - start + offset};
		return frame;
	}
	broken("an address in no mapping");
	__builtin_unreachable();
}

#ifdef WITHOUT_UNWINDER
static unsigned long walk(void) { return 0; }
#else
#include <unwind.h>

struct walk {
	unsigned long skip, n;
};

static _Unwind_Reason_Code visit(struct _Unwind_Context *context, void *argument) {
	struct walk *walk = argument;
	int interrupted = 0; /* by a signal: then it is not a return address */
	unsigned long address = _Unwind_GetIPInfo(context, &interrupted);
	if (walk->skip) {
		walk->skip--;
	} else if (address) {
		if (walk->n == FRAMES)
			broken("too many frames");
		walked[walk->n++].offset = address - !interrupted;
	}
	return _URC_NO_REASON;
}

/* Fills `walked`, without this function, `note` and `probe`. */
OUT_OF_LINE static unsigned long walk(void) {
	struct walk walk = {3, 0};
	_Unwind_Backtrace(visit, &walk);
	BARRIER();
	return walk.n;
}
#endif

static int is_it(const struct stack *stack, enum way way, const char *path, unsigned long n) {
	return stack->way == way && stack->frames == n && !strcmp(stack->path, path) &&
	       !memcmp(&frames[stack->first], walked, n * sizeof *walked);
}

/* The number of bytes to allocate. */
OUT_OF_LINE static size_t note(enum way way, const char *path) {
	unsigned long n = walking ? walk() : 0, i = 0;
	pthread_mutex_lock(&lock);
	read_maps();
	for (unsigned long at = 0; at < n; at++)
		walked[at] = locate(walked[at].offset);
	while (i < stack_count && !is_it(&stacks[i], way, path, n))
		i++;
	if (i == stack_count) {
		if (i == STACKS || frame_count + n > sizeof frames / sizeof *frames)
			broken("too many stacks");
		/* Pages: enough of them for malloc to map. */
		size_t size = way < MAP ? 1000 + i : (256 + i) * PAGE;
		struct stack stack = {way, "", 0, size, n, frame_count};
		if (strlen(path) >= sizeof stack.path)
			broken("too long a path");
		strcpy(stack.path, path);
		memcpy(&frames[frame_count], walked, n * sizeof *walked);
		stacks[stack_count++] = stack;
		frame_count += n;
	}
	stacks[i].count++;
	pthread_mutex_unlock(&lock);
	return stacks[i].size;
}

/* Bytes that malloc adds to a block with its own mapping. */
enum { LARGE_HEADER = 32 };

void *operator_new(size_t size) __attribute__((weak));
void operator_delete(void *p) __attribute__((weak));

OUT_OF_LINE void probe(enum way way, const char *path) {
	size_t size = note(way, path);
	void *p = NULL;
	switch (way) {
	case MALLOC: p = malloc(size); break;
	case CALLOC: p = calloc(size, 1); break;
	case REALLOC: p = realloc(malloc(1), size); break;
	case ALIGNED: p = aligned_alloc(256, size); break;
	case POSIX_ALIGNED:
		if (posix_memalign(&p, 256, size))
			p = NULL;
		break;
	case OPERATOR_NEW: p = operator_new(size); break;
	case MAP: p = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); break;
	case LARGE: p = malloc(size - LARGE_HEADER); break;
	case BREAK: p = sbrk(size); break;
	default: break;
	}
	if (!p || p == MAP_FAILED)
		broken("an allocation");
	switch (way) {
	case MAP: munmap(p, size); break;
	case BREAK: sbrk(-(long)size); break;
	case OPERATOR_NEW: operator_delete(p); break;
	default: free(p); break;
	}
	BARRIER();
}

void walk_stacks(int whether) { walking = whether; }

static void write_stack(FILE *out, const struct stack *stack, const char *layer, size_t size) {
	fprintf(out, "{\"tgid\":%d,\"layer\":\"%s\",\"path\":\"%s\",\"bytes\":%zu,\"count\":%lu,\"frames\":[",
		getpid(), layer, stack->path, size * stack->count, stack->count);
	for (unsigned long i = 0; i < stack->frames; i++) {
		const struct frame *frame = &frames[stack->first + i];
		fprintf(out, "%s[\"%s\",%lu]", i ? "," : "", modules[frame->module], frame->offset);
	}
	fprintf(out, "]}\n");
}

void write_stacks(const char *file) {
	FILE *out = fopen(file, "a");
	if (!out)
		broken("cannot write the truth");
	for (unsigned long i = 0; i < stack_count; i++) {
		const struct stack *stack = &stacks[i];
		if (stack->way < MAP || stack->way == LARGE)
			write_stack(out, stack, "heap",
				    stack->size - (stack->way == LARGE ? LARGE_HEADER : 0));
		if (stack->way >= MAP)
			write_stack(out, stack, "vm", stack->size);
	}
	if (fclose(out))
		broken("cannot write the truth");
}
