/* Changes its address space by one scenario and says by how much, measured as
 * the difference of the sums of /proc/self/maps.
 *
 *   vm SCENARIO   say "ready", await a byte, do it, say
 *                 {"bytes":…,"pieces":…}, await a byte, end with status 0
 *
 * System calls are made in line, without libc's wrappers: the caller is in the
 * leaf frame, and nothing else in this process maps memory meanwhile. */
#include "site.h"
#include <sys/mman.h>
#include <sys/syscall.h>

static long PAGE; /* bytes; set before any scenario */
#define INLINE __attribute__((always_inline)) static inline

INLINE long call(long number, long a, long b, long c, long d, long e, long f) {
#if defined(__x86_64__)
	long result;
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
#elif defined(__aarch64__)
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c, x3 __asm__("x3") = d, x4 __asm__("x4") = e;
	register long x5 __asm__("x5") = f;
	__asm__ volatile("svc 0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
#else
#error "unknown architecture"
#endif
}

static int failed(long result) { return result < 0 && result >= -4095; }

static long checked(long result) {
	if (failed(result))
		fail("a system call that must succeed");
	return result;
}

static void refused(long result) {
	if (!failed(result))
		fail("a system call that must be refused was not; the test");
}

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

enum { ANY = MAP_PRIVATE | MAP_ANONYMOUS };

INLINE long map_at(long address, long length, int flags) {
	return call(SYS_mmap, address, length, PROT_READ | PROT_WRITE, flags, -1, 0);
}
INLINE long map(long pages) { return checked(map_at(0, pages * PAGE, ANY)); }
INLINE long unmap(long address, long length) { return call(SYS_munmap, address, length, 0, 0, 0, 0); }
INLINE long remap(long address, long from, long to, long flags, long target) {
	return call(SYS_mremap, address, from, to, flags, target, 0);
}

/* An address with this many free pages behind it: reserved, and given back. */
INLINE long hole(long pages) {
	long address = map(pages);
	checked(unmap(address, pages * PAGE));
	return address;
}

/* Each returns the number of contiguous pieces that it leaves, -1: a matter of
 * definition. */
#define SCENARIO(name) OUT_OF_LINE static int site_##name(void)

SCENARIO(map) { return map(10), 1; }
SCENARIO(map_odd_length) { return checked(map_at(0, 5000, ANY)), 1; }
SCENARIO(unmap_all) {
	checked(unmap(map(10), 10 * PAGE));
	return 0;
}
SCENARIO(unmap_start) {
	checked(unmap(map(10), 3 * PAGE));
	return 1;
}
SCENARIO(unmap_middle) {
	checked(unmap(map(10) + 4 * PAGE, 2 * PAGE));
	return 2;
}
SCENARIO(unmap_end) {
	checked(unmap(map(10) + 7 * PAGE, 3 * PAGE));
	return 1;
}
SCENARIO(unmap_odd_length) {
	checked(unmap(map(10), PAGE + 1));
	return 1;
}
SCENARIO(unmap_several) {
	long at = hole(30);
	for (int i = 0; i < 3; i++)
		checked(map_at(at + i * 10 * PAGE, 5 * PAGE, ANY | MAP_FIXED_NOREPLACE));
	checked(unmap(at + 2 * PAGE, 20 * PAGE)); /* ends 2 pages into the third */
	return 2;
}
SCENARIO(unmap_refused) {
	refused(unmap(map(4) + 1, PAGE));
	return 1;
}
SCENARIO(map_fixed_middle) {
	checked(map_at(map(10) + 4 * PAGE, 3 * PAGE, ANY | MAP_FIXED));
	return 3;
}
SCENARIO(map_fixed_beyond) {
	long at = hole(20);
	checked(map_at(at, 6 * PAGE, ANY | MAP_FIXED_NOREPLACE));
	checked(map_at(at + 4 * PAGE, 6 * PAGE, ANY | MAP_FIXED));
	return 2;
}
SCENARIO(map_refused) {
	long at = map(4);
	refused(map_at(at, 4 * PAGE, ANY | MAP_FIXED_NOREPLACE));
	refused(map_at(0, 1L << 50, ANY));
	refused(map_at(0, 0, ANY));
	return 1;
}
SCENARIO(remap_grow_in_place) {
	long at = hole(20);
	checked(map_at(at, 5 * PAGE, ANY | MAP_FIXED_NOREPLACE));
	if (checked(remap(at, 5 * PAGE, 9 * PAGE, 0, 0)) != at)
		fail("growth in place");
	return 1;
}
SCENARIO(remap_move) {
	long at = hole(20);
	checked(map_at(at, 5 * PAGE, ANY | MAP_FIXED_NOREPLACE));
	checked(map_at(at + 5 * PAGE, PAGE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE));
	if (checked(remap(at, 5 * PAGE, 50 * PAGE, MREMAP_MAYMOVE, 0)) == at)
		fail("a move");
	return 2;
}
SCENARIO(remap_shrink) {
	checked(remap(map(10), 10 * PAGE, 4 * PAGE, 0, 0));
	return 1;
}
SCENARIO(remap_part) {
	long from = map(10), to = hole(10);
	checked(remap(from + 3 * PAGE, 2 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to));
	return 3;
}
SCENARIO(remap_over_another) {
	long from = map(4), over = map(10);
	checked(remap(from, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, over + 3 * PAGE));
	return 3;
}
SCENARIO(remap_refused) {
	long at = hole(20);
	checked(map_at(at, 5 * PAGE, ANY | MAP_FIXED_NOREPLACE));
	checked(map_at(at + 5 * PAGE, PAGE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE));
	refused(remap(at, 5 * PAGE, 8 * PAGE, 0, 0));
	return 2;
}
SCENARIO(remap_keeping_old) {
	checked(remap(map(6), 6 * PAGE, 6 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0));
	return 2;
}
SCENARIO(remap_duplicate) {
	long at = checked(map_at(0, 6 * PAGE, MAP_SHARED | MAP_ANONYMOUS));
	checked(remap(at, 0, 6 * PAGE, MREMAP_MAYMOVE, 0));
	return 2;
}

INLINE long brk_to(long address) { return call(SYS_brk, address, 0, 0, 0, 0, 0); }

SCENARIO(brk_up) {
	long now = brk_to(0);
	if (brk_to(now + 10 * PAGE) != now + 10 * PAGE)
		fail("brk");
	return 1;
}
SCENARIO(brk_down) {
	long now = brk_to(0);
	brk_to(now + 10 * PAGE);
	if (brk_to(now + 3 * PAGE) != now + 3 * PAGE)
		fail("brk");
	return 1;
}
SCENARIO(brk_odd) {
	long now = brk_to(0);
	for (long i = 1; i <= 9; i++)
		if (brk_to(now + i * 3000) != now + i * 3000)
			fail("brk");
	if (brk_to(now + 9001) != now + 9001)
		fail("brk");
	return -1;
}
SCENARIO(brk_refused) {
	long now = brk_to(0);
	if (brk_to(1L << 50) != now)
		fail("a brk that must be refused");
	return 0;
}

static long segment;
INLINE long attach(void) { return checked(call(SYS_shmat, segment, 0, 0, 0, 0, 0)); }

SCENARIO(shared_segment) { return attach(), 1; }
SCENARIO(shared_segment_detached) {
	attach();
	checked(call(SYS_shmdt, attach(), 0, 0, 0, 0, 0));
	return 1;
}

static const struct {
	const char *name;
	int (*run)(void);
} scenarios[] = {
#define ROW(name) {#name, site_##name}
    ROW(map), ROW(map_odd_length), ROW(unmap_all), ROW(unmap_start), ROW(unmap_middle),
    ROW(unmap_end), ROW(unmap_odd_length), ROW(unmap_several), ROW(unmap_refused),
    ROW(map_fixed_middle), ROW(map_fixed_beyond), ROW(map_refused), ROW(remap_grow_in_place),
    ROW(remap_move), ROW(remap_shrink), ROW(remap_part), ROW(remap_over_another),
    ROW(remap_refused), ROW(remap_keeping_old), ROW(remap_duplicate), ROW(brk_up), ROW(brk_down),
    ROW(brk_odd), ROW(brk_refused), ROW(shared_segment), ROW(shared_segment_detached),
};

/* Sum of all mappings in bytes. The stack is left out, because it grows by itself. */
static long mapped(void) {
	static char text[1 << 16];
	int fd = open("/proc/self/maps", O_RDONLY);
	long n = 0, got, sum = 0;
	while ((got = read(fd, text + n, sizeof text - 1 - n)) > 0)
		n += got;
	close(fd);
	text[n] = 0;
	for (char *line = text; *line;) {
		char *end = strchr(line, '\n'), *dash;
		*end = 0;
		unsigned long from = strtoul(line, &dash, 16), to = strtoul(dash + 1, NULL, 16);
		if (!strstr(line, "[stack]"))
			sum += to - from;
		line = end + 1;
	}
	return sum;
}

int main(int argc, char **argv) {
	PAGE = sysconf(_SC_PAGESIZE);
	for (size_t i = 0; argc == 2 && i < sizeof scenarios / sizeof *scenarios; i++) {
		if (strcmp(scenarios[i].name, argv[1]))
			continue;
		segment = checked(call(SYS_shmget, 0, 5000, 0600 | 01000, 0, 0, 0));
		say("ready\n");
		await_byte();
		long before = mapped();
		int pieces = scenarios[i].run();
		long bytes = mapped() - before;
		call(SYS_shmctl, segment, 0 /* IPC_RMID */, 0, 0, 0, 0);
		char line[128];
		int n = snprintf(line, sizeof line, "{\"bytes\":%ld,\"pieces\":%d}\n", bytes, pieces);
		write_all(1, line, n);
		await_byte();
		return 0;
	}
	return 96;
}
