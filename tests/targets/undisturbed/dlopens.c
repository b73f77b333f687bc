/* Threads that load and unload libraries, all at once. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 4, EACH = 25 };

static const char *libraries[] = {"libresolv.so.2", "libanl.so.1", "librt.so.1",
				  "libnss_compat.so.2", "libutil.so.1"};

static void *load(void *result) {
	for (int i = 0; i < EACH; i++) {
		void *library = dlopen(libraries[i % 5], RTLD_NOW);
		free(malloc(100));
		*(int *)result += library && dlclose(library) == 0;
	}
	return NULL;
}

int main(void) {
	pthread_t threads[THREADS];
	int loaded[THREADS] = {0};
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, load, &loaded[i]);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		printf("thread %d: %d\n", i, loaded[i]);
	}
	return 0;
}
