/* Eight threads that do nothing but allocate and free.
 *
 *   overload TRUTH   work, write the truth, end with status 0
 */
#include "site.h"
#include <pthread.h>

SITE(overload, malloc(a))

enum { THREADS = 8, ROUNDS = 100000 };

static void *work(void *unused) {
	for (int i = 0; i < ROUNDS; i++) {
		struct block b = ALLOCATE(overload, NULL, 64, 0, 64);
		if (i % 100)
			free(give(&b));
	}
	return unused;
}

int main(int argc, char **argv) {
	pthread_t threads[THREADS];
	if (argc != 2)
		return 96;
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, work, NULL))
			fail("pthread_create");
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	write_truth(argv[1]);
	return 0;
}
