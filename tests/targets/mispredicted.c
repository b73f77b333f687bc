/* A malloc that looks like glibc's where that takes a block from the thread's cache of free blocks, but gives what
 * `given` says. It is hidden, so that nobody else calls it. The environment's LIE_AT is the number of the call that
 * gives another block than the cache has, from 1 on. Everything is released.
 *
 *   LD_PRELOAD=... LIE_AT=10 true
 */
#include <stdlib.h>

enum { CALLS = 200, COUNTS = 64, LIST = 1, SIZE = 30, SPARE = CALLS };

static _Alignas(16) char blocks[CALLS + 1][32];

struct cache {
	unsigned short counts[COUNTS];
	void *lists[COUNTS];
};
static struct cache cache;
__attribute__((used)) static __thread struct cache *cache_of_thread __asm__("cache_of_thread");
__attribute__((used)) static void *given __asm__("given");

void *take(size_t size) __asm__("malloc") __attribute__((visibility("hidden")));
void release(void *p) __asm__("free") __attribute__((visibility("hidden")));

__asm__(".text\n"
        ".globl malloc\n"
        ".hidden malloc\n"
        ".type malloc, @function\n"
        "malloc:\n"
        "    .cfi_startproc\n"
        "    push %rbx\n"
        "    .cfi_adjust_cfa_offset 8\n"
        "    .cfi_offset rbx, -16\n"
        "    mov cache_of_thread@gottpoff(%rip), %rbx\n"
        "    mov %fs:(%rbx), %rdx\n"
        "    mov $1, %ecx\n"
        "    lea 0x10(%rcx), %rdi\n"
        "    mov (%rdx,%rdi,8), %rax\n"
        "    test $0xf, %al\n"
        "    jne 1f\n"
        "    mov %rax, %rsi\n"
        "    shr $0xc, %rsi\n"
        "1:  mov given(%rip), %rax\n"
        "    pop %rbx\n"
        "    .cfi_adjust_cfa_offset -8\n"
        "    ret\n"
        "    .cfi_endproc\n"
        ".size malloc, . - malloc\n");

__attribute__((noipa)) void release(void *p)
{
	(void)p;
	__asm__ volatile("" ::: "memory");
}

__attribute__((constructor)) static void run(void)
{
	const char *lie_at = getenv("LIE_AT");
	int lie = lie_at ? atoi(lie_at) : 0;
	cache_of_thread = &cache;
	for (int call = 1; call <= CALLS; call++) {
		cache.lists[LIST] = blocks[call - 1];
		given = call == lie ? blocks[SPARE] : cache.lists[LIST];
		release(take(SIZE));
	}
}
