/* Signal handlers. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "probe.h"
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

static void handle(int signal, void *handler, int flags) {
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_sigaction = (void (*)(int, siginfo_t *, void *))handler;
	action.sa_flags = flags | SA_SIGINFO;
	sigaction(signal, &action, NULL);
}

OUT_OF_LINE static void handler(int signal, siginfo_t *info, void *context) {
	KEEP(&signal); KEEP(info); KEEP(context);
	PROBE("handler<*<deep<deep<deep", signal);
	BARRIER();
}
OUT_OF_LINE static void deep(int depth, int by_kill) {
	if (depth)
		deep(depth - 1, by_kill);
	else if (by_kill)
		kill(getpid(), SIGUSR1);
	else
		raise(SIGUSR1);
	BARRIER();
}
void case_signal(void) {
	handle(SIGUSR1, handler, 0);
	deep(2, 0);
	deep(2, 1);
	BARRIER();
}

OUT_OF_LINE static void handler_on_own_stack(int signal, siginfo_t *info, void *context) {
	KEEP(&signal); KEEP(info); KEEP(context);
	PROBE("handler_on_own_stack<*<raises", signal_on_own_stack);
	BARRIER();
}
OUT_OF_LINE static void raises(int signal) {
	raise(signal);
	BARRIER();
}
void case_signal_on_own_stack(void) {
	enum { SIZE = 1 << 16 };
	static char space[SIZE];
	stack_t own, before;
	memset(&own, 0, sizeof own);
	own.ss_sp = space;
	own.ss_size = SIZE;
	sigaltstack(&own, &before);
	handle(SIGUSR2, handler_on_own_stack, SA_ONSTACK);
	raises(SIGUSR2);
	sigaltstack(&before, NULL);
	BARRIER();
}

OUT_OF_LINE static void inner_handler(int signal, siginfo_t *info, void *context) {
	KEEP(&signal); KEEP(info); KEEP(context);
	PROBE("inner_handler<*<outer_handler<*<raises", signal_in_signal);
	BARRIER();
}
OUT_OF_LINE static void outer_handler(int signal, siginfo_t *info, void *context) {
	KEEP(&signal); KEEP(info); KEEP(context);
	raise(SIGUSR1);
	BARRIER();
}
void case_signal_in_signal(void) {
	handle(SIGUSR1, inner_handler, 0);
	handle(SIGUSR2, outer_handler, 0);
	raises(SIGUSR2);
	BARRIER();
}

static sigjmp_buf out_of_handler;
OUT_OF_LINE static void leaving_handler(int signal, siginfo_t *info, void *context) {
	KEEP(&signal); KEEP(info); KEEP(context);
	PROBE("leaving_handler<*<raises", longjmp_from_signal);
	siglongjmp(out_of_handler, 1);
}
OUT_OF_LINE static void after_handler(void) {
	PROBE("after_handler", longjmp_from_signal);
	BARRIER();
}
void case_longjmp_from_signal(void) {
	handle(SIGUSR1, leaving_handler, 0);
	if (!sigsetjmp(out_of_handler, 1))
		raises(SIGUSR1);
	after_handler();
	BARRIER();
}

#ifdef __x86_64__
/* Interrupted where a compiler's own code cannot be made to stop: the address
 * of the instruction is not a return address, and the byte before it belongs to
 * another function. */
__asm__(".text\n"
	".type before_faulting, @function\n"
	"before_faulting:\n"
	".cfi_startproc\n"
	"	subq $40, %rsp\n"
	".cfi_adjust_cfa_offset 40\n"
	"	addq $40, %rsp\n"
	".cfi_endproc\n"
	".size before_faulting, . - before_faulting\n"
	".type faulting, @function\n"
	"faulting:\n"
	".cfi_startproc\n"
	"	ud2\n"
	"	ret\n"
	".cfi_endproc\n"
	".size faulting, . - faulting\n"
	".type faulting_in_prologue, @function\n"
	"faulting_in_prologue:\n"
	".cfi_startproc\n"
	"	pushq %rbp\n"
	".cfi_adjust_cfa_offset 8\n"
	".cfi_rel_offset %rbp, 0\n"
	"	ud2\n"
	"	movq %rsp, %rbp\n"
	".cfi_def_cfa_register %rbp\n"
	"	ud2\n"
	"	subq $128, %rsp\n"
	"	ud2\n"
	"	leave\n"
	".cfi_def_cfa %rsp, 8\n"
	".cfi_restore %rbp\n"
	"	ud2\n"
	"	ret\n"
	".cfi_endproc\n"
	".size faulting_in_prologue, . - faulting_in_prologue\n");
void faulting(void), faulting_in_prologue(void);

static void skip(void *context) { ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] += 2; }

OUT_OF_LINE static void on_fault(int signal, siginfo_t *info, void *context) {
	KEEP(&signal); KEEP(info);
	PROBE("on_fault<*<faulting", fault_at_first_instruction);
	skip(context);
}
void case_fault_at_first_instruction(void) {
	handle(SIGILL, on_fault, 0);
	faulting();
	BARRIER();
}

OUT_OF_LINE static void on_fault_in_prologue(int signal, siginfo_t *info, void *context) {
	KEEP(&signal); KEEP(info);
	PROBE("on_fault_in_prologue<*<faulting_in_prologue", fault_in_prologue);
	skip(context);
}
void case_fault_in_prologue(void) {
	handle(SIGILL, on_fault_in_prologue, 0);
	faulting_in_prologue();
	BARRIER();
}
#endif
