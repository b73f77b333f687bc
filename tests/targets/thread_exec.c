/* A thread that is not the leader replaces the program: the new image has the
 * leader's tid, and its blocks are the new image's alone.
 *
 *   thread_exec        allocates, then executes itself from a second thread
 *   thread_exec again  allocates and ends with code 5
 */
#include "site.h"
#include <pthread.h>

SITE(before_exec, malloc(a))
SITE(after_exec, malloc(a))

static void *replace(void *self) {
	for (int i = 0; i < 10; i++)
		site_before_exec(NULL, 64, 0);
	execl(self, self, "again", NULL);
	return NULL;
}

int main(int argc, char **argv) {
	if (argc > 1) {
		for (int i = 0; i < 1000; i++)
			site_after_exec(NULL, 100, 0);
		return 5;
	}
	pthread_t thread;
	if (pthread_create(&thread, NULL, replace, argv[0]) == 0)
		pthread_join(thread, NULL);
	return 96;
}
