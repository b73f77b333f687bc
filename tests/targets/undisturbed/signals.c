/* Many signals to threads: real-time ones, which all count, and SIGURG as Go's runtime
 * sends it to preempt. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 2, EACH = 300 };

static _Atomic int queued[THREADS], values[THREADS], preempted[THREADS];
static _Thread_local int self;
static pthread_barrier_t ready;

static void on_queued(int signal, siginfo_t *info, void *context) {
	(void)signal, (void)context;
	atomic_fetch_add(&queued[self], 1);
	atomic_fetch_add(&values[self], info->si_value.sival_int);
}

static void on_urgent(int signal) {
	(void)signal;
	atomic_fetch_add(&preempted[self], 1);
}

static void *work(void *number) {
	self = (int)(long)number;
	pthread_barrier_wait(&ready);
	while (queued[self] < EACH || preempted[self] < EACH)
		free(malloc(100));
	return NULL;
}

int main(void) {
	struct sigaction on_rt = {.sa_sigaction = on_queued, .sa_flags = SA_SIGINFO | SA_RESTART};
	struct sigaction on_urg = {.sa_handler = on_urgent, .sa_flags = SA_RESTART};
	sigaction(SIGRTMIN + 3, &on_rt, NULL);
	sigaction(SIGURG, &on_urg, NULL);
	pthread_t threads[THREADS];
	pthread_barrier_init(&ready, NULL, THREADS + 1);
	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, work, (void *)i);
	pthread_barrier_wait(&ready);
	for (int n = 1; n <= EACH; n++)
		for (int i = 0; i < THREADS; i++) {
			while (pthread_sigqueue(threads[i], SIGRTMIN + 3, (union sigval){n}))
				usleep(100); /* the queue is full */
			/* Two of the same kind would become one: the next when this one was seen. */
			pthread_kill(threads[i], SIGURG);
			while (preempted[i] < n)
				usleep(20);
		}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		printf("thread %d: %d queued, values %d, %d preempted\n", i, queued[i], values[i],
		       preempted[i]);
	}
	return 0;
}
