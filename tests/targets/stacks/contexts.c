/* Stacks other than the thread's own, and shared ones. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "probe.h"
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#ifdef __GLIBC__
static ucontext_t caller, coroutine;
static char coroutine_stack[1 << 17];

OUT_OF_LINE static void in_coroutine(void) {
	probe(MALLOC, "in_coroutine<coroutine_body<*");
	BARRIER();
}
static void coroutine_body(void) {
	for (int i = 0; i < 3; i++) {
		in_coroutine();
		swapcontext(&coroutine, &caller);
	}
}
OUT_OF_LINE static void between_turns(void) {
	PROBE("between_turns", coroutine);
	BARRIER();
}
void case_coroutine(void) {
	getcontext(&coroutine);
	coroutine.uc_stack.ss_sp = coroutine_stack;
	coroutine.uc_stack.ss_size = sizeof coroutine_stack;
	coroutine.uc_link = &caller;
	makecontext(&coroutine, coroutine_body, 0);
	for (int i = 0; i < 4; i++) {
		swapcontext(&caller, &coroutine);
		between_turns();
	}
	BARRIER();
}
#else
/* musl has no such functions. */
void case_coroutine(void) {}
#endif

#ifdef __x86_64__
/* Contexts as Boost makes them, in assembler without call frame information: below its first function a new stack
 * has the address of code that ends the program. `top` of the stack is a multiple of 16. */
#define MAKE_CONTEXT(name)                                                                         \
	__asm__(".text\n.type " #name ", @function\n" #name ":\n"                                    \
		"lea -72(%rdi), %rax\n" /* r15, r14, r13, r12, rbx, rbp, where to begin */          \
		"mov %rsi, 32(%rax)\n"                                                             \
		"lea 2f(%rip), %rcx\n"                                                             \
		"mov %rcx, 40(%rax)\n"                                                             \
		"lea 1f(%rip), %rcx\n"                                                             \
		"mov %rcx, 48(%rax)\n"                                                             \
		"ret\n"                                                                            \
		"1: push %rbp\n"                                                                   \
		"jmp *%rbx\n"                                                                      \
		"2: xor %edi, %edi\n"                                                              \
		"call _exit@PLT\n"                                                                 \
		"hlt\n"                                                                            \
		".size " #name ", . - " #name "\n");                                               \
	void *name(void *top, void (*function)(void))
MAKE_CONTEXT(own_make_fcontext);
/* Its name is not known to memtrace. */
MAKE_CONTEXT(make_unknown);

/* Leaves a stack for another. */
__asm__(".text\n.type change_stacks, @function\nchange_stacks:\n"
	"push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
	"mov %rsp, (%rdi)\n"
	"mov %rsi, %rsp\n"
	"pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\n"
	"ret\n"
	".size change_stacks, . - change_stacks\n");
void change_stacks(void **left, void *next);

static void *outside, *inside;
static char own_stack[1 << 17] __attribute__((aligned(16)));

OUT_OF_LINE static void in_own_context(void) {
	probe(MALLOC, "in_own_context<own_context_body<own_make_fcontext");
	BARRIER();
}
static void own_context_body(void) {
	for (;;) {
		in_own_context();
		change_stacks(&inside, outside);
	}
}
OUT_OF_LINE static void in_unknown_context(void) {
	probe(MALLOC, "in_unknown_context<unknown_context_body<*");
	BARRIER();
}
static void unknown_context_body(void) {
	for (;;) {
		in_unknown_context();
		change_stacks(&inside, outside);
	}
}
OUT_OF_LINE static void between_changes(void) {
	PROBE("between_changes", own_contexts);
	BARRIER();
}
OUT_OF_LINE static void run_three_times(void *context) {
	inside = context;
	for (int i = 0; i < 3; i++)
		change_stacks(&outside, inside);
	BARRIER();
}
void case_own_contexts(void) {
	run_three_times(own_make_fcontext(own_stack + sizeof own_stack, own_context_body));
	between_changes();
	run_three_times(make_unknown(own_stack + sizeof own_stack, unknown_context_body));
	between_changes();
	BARRIER();
}
#endif

OUT_OF_LINE static void around_vfork(void) {
	PROBE("around_vfork<vforks", vfork);
	BARRIER();
}
OUT_OF_LINE static void vforks(void) {
	around_vfork();
	pid_t child = vfork();
	if (!child) {
		execl("/bin/true", "true", (char *)0);
		_exit(1);
	}
	around_vfork();
	int status;
	if (waitpid(child, &status, 0) != child || status)
		broken("a vforked child");
	BARRIER();
}
void case_vfork(void) {
	vforks();
	BARRIER();
}
