/* Loads two libraries in turn, so that each comes to where the other was.
 *
 *   turns alone|threads|children ONE TWO   ends with code 7
 *
 * Fails unless one was loaded at the very address of the other. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "probe.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The test knows them too. */
enum { TURNS = 100, PER_TURN = 5, HELPERS = 3, ONE = 1111, TWO = 2222, NOISE = 3333 };

void broken(const char *what) {
	if (write(2, what, strlen(what)) < 0)
		_exit(97);
	_exit(98);
}

/* Where the library was. */
OUT_OF_LINE static void *turn(const char *path, size_t size) {
	void *library = dlopen(path, RTLD_NOW);
	if (!library)
		broken(dlerror());
	void (*run)(size_t) = (void (*)(size_t))dlsym(library, "twin_run");
	Dl_info info;
	if (!run || !dladdr((void *)run, &info))
		broken("the library's function\n");
	for (int i = 0; i < PER_TURN; i++)
		run(size);
	dlclose(library);
	return info.dli_fbase;
}

OUT_OF_LINE static void turns(char **paths) {
	int reused = 0;
	void *before = NULL;
	for (int i = 0; i < TURNS; i++) {
		void *base = turn(paths[0], ONE);
		reused += base == before;
		before = turn(paths[1], TWO);
		reused += base == before;
	}
	if (!reused)
		broken("no library came to where another was\n");
}

static atomic_int finished;
OUT_OF_LINE static void noise_inner(void) {
	void *p = malloc(NOISE);
	KEEP(p);
	free(p);
}
static void *noise(void *none) {
	while (!finished) {
		noise_inner();
		usleep(100);
	}
	return none;
}

int main(int argc, char **argv) {
	if (argc != 4)
		return 96;
	int threads = !strcmp(argv[1], "threads"), children = !strcmp(argv[1], "children");
	pthread_t helpers[HELPERS];
	for (int i = 0; threads && i < HELPERS; i++)
		if (pthread_create(&helpers[i], NULL, noise, NULL))
			broken("pthread_create\n");
	for (int i = 0; children && i < HELPERS; i++)
		if (!fork()) {
			turns(argv + 2);
			_exit(0);
		}
	turns(argv + 2);
	finished = 1;
	for (int i = 0; threads && i < HELPERS; i++)
		pthread_join(helpers[i], NULL);
	int status;
	while (children && wait(&status) > 0)
		if (status)
			broken("a child\n");
	return 7;
}
