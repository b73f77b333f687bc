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
