/* Frames by their layout. */
#include "probe.h"
#include <alloca.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

/* Not known when compiling. */
static volatile int five = 5;

OUT_OF_LINE static void third(void) {
	PROBE("third<second<first", nested);
	BARRIER();
}
OUT_OF_LINE static void second(void) {
	third();
	BARRIER();
}
OUT_OF_LINE static void first(void) {
	second();
	BARRIER();
}
void case_nested(void) {
	first();
	first(); /* another return address: another stack */
	BARRIER();
}

OUT_OF_LINE static void recurse(int depth) {
	if (depth)
		recurse(depth - 1);
	else
		PROBE("recurse<recurse<recurse<recurse<recurse<recurse", recursion);
	BARRIER();
}
void case_recursion(void) {
	recurse(five);
	BARRIER();
}

OUT_OF_LINE static void descend(int depth) {
	if (depth)
		descend(depth - 1);
	else
		probe(MALLOC, "descend<descend<*");
	BARRIER();
}
void case_very_deep(void) {
	descend(five * 20);
	descend(five * 500); /* more than are recorded */
	BARRIER();
}

OUT_OF_LINE static void with_alloca(int n) {
	char *space = alloca(n * 17 + 3);
	KEEP(space);
	PROBE("with_alloca", on_stack);
	KEEP(space);
}
void case_on_stack(void) {
	for (int i = 0; i < 40; i += five)
		with_alloca(i);
}

OUT_OF_LINE static void with_array(int n, int m) {
	char one[n], other[n][m];
	KEEP(one);
	KEEP(other);
	PROBE("with_array", variable_array);
	KEEP(one);
	KEEP(other);
}
void case_variable_array(void) {
	for (int i = 1; i < 40; i += five)
		with_array(i, 2 * i);
}

OUT_OF_LINE static void aligned_locals(int n) {
	volatile double __attribute__((aligned(64))) values[8];
	for (int i = 0; i < 8; i++)
		values[i] = n;
	PROBE("aligned_locals", realigned);
	KEEP(values);
}
void case_realigned(void) {
	aligned_locals(five);
	BARRIER();
}

/* The compiler keeps where its caller's frame was in a register of its own,
 * and saves it in the frame: arguments lie there. */
OUT_OF_LINE static void aligned_with_arguments(int n, ...) {
	char *space = alloca(n * 100 + 64);
	volatile double __attribute__((aligned(64))) values[8];
	va_list arguments;
	va_start(arguments, n);
	for (int i = 0; i < 8; i++)
		values[i] = va_arg(arguments, int);
	va_end(arguments);
	KEEP(space);
	PROBE("aligned_with_arguments", realigned_with_alloca);
	KEEP(values);
}
void case_realigned_with_alloca(void) {
	for (int i = 1; i < 5; i++)
		aligned_with_arguments(i, 1, 2, 3, 4, 5, 6, 7, 8);
}

#ifdef __x86_64__
#define REALIGNED_ENTRY __attribute__((force_align_arg_pointer))
#else
#define REALIGNED_ENTRY
#endif
/* As with -mstackrealign. */
OUT_OF_LINE REALIGNED_ENTRY static void realigned_entry(int n) {
	volatile double __attribute__((aligned(32))) values[8];
	values[n] = n;
	PROBE("realigned_entry", realigned_entry);
	KEEP(values);
}
void case_realigned_entry(void) {
	realigned_entry(five);
	BARRIER();
}

OUT_OF_LINE static void many(long a, long b, long c, long d, long e, long f, long g, long h, long i) {
	volatile long sum = a + b + c + d + e + f + g + h + i;
	PROBE("many", stack_arguments);
	KEEP(&sum);
}
void case_stack_arguments(void) {
	many(1, 2, 3, 4, 5, 6, five, 8, 9);
	BARRIER();
}

OUT_OF_LINE static void tail_last(int n) {
	KEEP(&n);
	probe(MALLOC, "tail_last<*<case_tail_call<main<*");
	BARRIER();
}
/* With optimisation, both leave no frame. */
OUT_OF_LINE static void tail_middle(int n) { tail_last(n + 1); }
OUT_OF_LINE static void tail_first(int n) { tail_middle(n + 1); }
void case_tail_call(void) {
	tail_first(five);
	BARRIER();
}

static jmp_buf away;
OUT_OF_LINE static __attribute__((noreturn)) void leave(void) {
	PROBE("leave<calls_last", no_return);
	longjmp(away, 1);
}
/* Its last instruction is the call: the return address is another function's. */
OUT_OF_LINE static void calls_last(int n) {
	KEEP(&n);
	leave();
}
void case_no_return(void) {
	if (!setjmp(away))
		calls_last(five);
	BARRIER();
}

OUT_OF_LINE static __attribute__((cold)) void rarely(void) {
	PROBE("rarely<partly_cold", cold_part);
	BARRIER();
}
/* Its cold part is far from the rest of it. */
OUT_OF_LINE static int partly_cold(int n) {
	char text[100];
	memset(text, n, sizeof text);
	KEEP(text);
	if (n == five) {
		rarely();
		text[1] = n;
	}
	KEEP(text);
	return text[1] + text[n];
}
void case_cold_part(void) {
	int sum = partly_cold(five) + partly_cold(five + 1);
	KEEP(&sum);
}

OUT_OF_LINE static void large_frame(int n) {
	char space[200000];
	memset(space, n, sizeof space);
	KEEP(space);
	PROBE("large_frame", large_frame);
	KEEP(space);
}
void case_large_frame(void) {
	large_frame(five);
	BARRIER();
}
