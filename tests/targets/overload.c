/* Threads that do nothing but allocate and free.
 *
 *   overload TRUTH THREADS ROUNDS   work, write the truth, end with status 0
 */
#include "site.h"
#include <pthread.h>

SITE(overload, malloc(a))

enum { MOST_THREADS = 8 };

static int rounds;

static void *work(void *unused) {
	for (int i = 0; i < rounds; i++) {
		struct block b = ALLOCATE(overload, NULL, 64, 0, 64);
		if (i % 100)
			free(give(&b));
	}
	return unused;
}

int main(int argc, char **argv) {
	pthread_t threads[MOST_THREADS];
	if (argc != 4)
		return 96;
	int n = atoi(argv[2]);
	if (n < 1 || n > MOST_THREADS)
		return 96;
	rounds = atoi(argv[3]);
	for (int i = 0; i < n; i++)
		if (pthread_create(&threads[i], NULL, work, NULL))
			fail("pthread_create");
	for (int i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
	write_truth(argv[1]);
	return 0;
}
