/* Stacks whose truth is known: where the target allocates, it first walks its
 * own stack with the compiler's unwinder. */
#ifndef PROBE_H
#define PROBE_H
#ifdef __cplusplus
extern "C" {
#endif

/* How to allocate. Those from MAP on are rounded to pages, and are seen by the vm layer. */
enum way {
	MALLOC,
	CALLOC,
	REALLOC,
	ALIGNED,
	POSIX_ALIGNED,
	OPERATOR_NEW,
	MAP,
	LARGE, /* a malloc that maps: seen by both layers */
	BREAK,
	WAYS,
};

/* Notes the stack of the caller and allocates, in this way, a number of bytes
 * that no other stack allocates. Releases it again.
 *
 * `path`: the functions from the caller outward, as known by construction,
 * `<` between neighbours; `*` stands for any number of functions. Unwinders
 * are themselves to be tested, so the truth does not depend on one alone. */
void probe(enum way way, const char *path);

/* Whether to ask the unwinder from now on, or to rely on paths alone. */
void walk_stacks(int whether);
/* Appends a JSON line for each stack to a file. */
void write_stacks(const char *file);
/* Ends the target with a message. */
void broken(const char *what);

/* The path beyond the frames of case NAME itself. */
#define IN(name) "<case_" #name "<main<*"
/* Of a case's leaf function: MALLOC, and the functions up to the case. */
#define PROBE(path, name) probe(MALLOC, path IN(name))

/* Neither inlined nor cloned; clang has no `noipa`. */
#ifdef __clang__
#define OUT_OF_LINE __attribute__((noinline))
#else
#define OUT_OF_LINE __attribute__((noipa))
#endif
/* After a call: it is not the function's last, and becomes no jump. */
#define BARRIER() __asm__ volatile("" ::: "memory")
/* Keeps the contents of `p` in memory. */
#define KEEP(p) __asm__ volatile("" ::"r"(p) : "memory")

#ifdef __cplusplus
}
#endif
#endif
