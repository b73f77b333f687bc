/* Functions called by libraries. */
#include "probe.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>

enum { NUMBERS = 6 };
static const int numbers[NUMBERS] = {4, 3, 6, 2, 5, 1};

static void sort(int (*compare)(const void *, const void *)) {
	int copy[NUMBERS];
	for (int i = 0; i < NUMBERS; i++)
		copy[i] = numbers[i];
	qsort(copy, NUMBERS, sizeof *copy, compare);
	BARRIER();
}

static int order(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

OUT_OF_LINE static int compare(const void *a, const void *b) {
	PROBE("compare<*", qsort);
	return order(a, b);
}
void case_qsort(void) {
	sort(compare);
	BARRIER();
}

OUT_OF_LINE static int compare_inside(const void *a, const void *b) {
	PROBE("compare_inside<*<compare_outside<*", qsort_in_qsort);
	return order(a, b);
}
OUT_OF_LINE static int compare_outside(const void *a, const void *b) {
	sort(compare_inside);
	return order(a, b);
}
void case_qsort_in_qsort(void) {
	sort(compare_outside);
	BARRIER();
}

OUT_OF_LINE static int compare_key(const void *a, const void *b) {
	PROBE("compare_key<*", bsearch);
	return order(a, b);
}
void case_bsearch(void) {
	static const int sorted[] = {1, 2, 3, 5, 8, 13, 21, 34, 55};
	int key = 34;
	if (!bsearch(&key, sorted, sizeof sorted / sizeof *sorted, sizeof *sorted, compare_key))
		broken("bsearch");
	BARRIER();
}

static jmp_buf out_of_qsort;
OUT_OF_LINE static int compare_and_leave(const void *a, const void *b) {
	PROBE("compare_and_leave<*", longjmp_from_qsort);
	if (order(a, b) > 2)
		longjmp(out_of_qsort, 1);
	return order(a, b);
}
OUT_OF_LINE static void after_longjmp(void) {
	PROBE("after_longjmp", longjmp_from_qsort);
	BARRIER();
}
void case_longjmp_from_qsort(void) {
	if (!setjmp(out_of_qsort))
		sort(compare_and_leave);
	after_longjmp();
	BARRIER();
}

static pthread_once_t once;
OUT_OF_LINE static void initialise(void) {
	PROBE("initialise<*", once);
	BARRIER();
}
void case_once(void) {
	pthread_once_t fresh = PTHREAD_ONCE_INIT;
	once = fresh;
	pthread_once(&once, initialise);
	BARRIER();
}

enum { THREADS = 4, PER_THREAD = 50 };
static void run_thread(void *(*body)(void *), int n) {
	pthread_t threads[THREADS];
	for (int i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, body, NULL))
			broken("pthread_create");
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
}

OUT_OF_LINE static void in_thread(int depth) {
	if (depth)
		in_thread(depth - 1);
	else
		probe(MALLOC, "in_thread<*<thread<*");
	BARRIER();
}
OUT_OF_LINE static void *thread(void *none) {
	for (int i = 0; i < PER_THREAD; i++)
		in_thread(i % 5);
	return none;
}
void case_threads(void) { run_thread(thread, THREADS); }

static pthread_key_t key;
OUT_OF_LINE static void at_thread_end(void *value) {
	KEEP(value);
	probe(MALLOC, "at_thread_end<*");
	BARRIER();
}
static void *with_value(void *none) {
	pthread_setspecific(key, &key);
	return none;
}
void case_thread_end(void) {
	pthread_key_create(&key, at_thread_end);
	run_thread(with_value, 1);
	pthread_key_delete(key);
}
