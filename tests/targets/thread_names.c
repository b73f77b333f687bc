/* Threads of known names, which all allocate through the same functions.
 *
 *   thread_names [NAME BLOCKS]...  a thread for each pair, one after the other, which keeps that many
 *                                  blocks of 100 bytes; the leader does what the last pair says
 */
#include "site.h"
#include <pthread.h>
#include <sys/prctl.h>

SITE(block, malloc(a))

OUT_OF_LINE static void *work(void *of) {
	char **pair = of;
	prctl(PR_SET_NAME, pair[0]);
	for (long left = strtol(pair[1], NULL, 10); left > 0; left--)
		site_block(NULL, 100, 0);
	return NULL;
}

int main(int argc, char **argv) {
	for (int at = 1; at + 3 < argc; at += 2) {
		pthread_t thread;
		if (pthread_create(&thread, NULL, work, argv + at) || pthread_join(thread, NULL))
			return 96;
	}
	work(argv + argc - 2);
	return 5;
}
