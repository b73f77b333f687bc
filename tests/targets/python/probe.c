/* Allocates for Python programs, and calls them back. Knows nothing of Python. */
#include <pthread.h>
#include <stdlib.h>

/* Allocates this many bytes and releases them again. */
void probe(size_t bytes)
{
	void *volatile block = malloc(bytes);

	free(block);
}

void call_back(void (*callback)(void))
{
	callback();
	__asm__ volatile("" ::: "memory"); /* not its last call: it keeps its frame */
}

static void *in_thread(void *callback)
{
	/* Each time, the interpreter makes a state for the thread, and frees it. */
	for (int i = 0; i < 3; i++)
		call_back((void (*)(void))callback);
	return NULL;
}

/* Calls back from a thread that the interpreter did not make. */
int call_back_in_thread(void (*callback)(void))
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, in_thread, (void *)callback))
		return 0;
	return pthread_join(thread, NULL) == 0;
}
