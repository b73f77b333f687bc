/* Starts RATE short processes a second for SECONDS and says how many it started:
 *   load SECONDS RATE PYTHON
 * Of ten processes four are shells, two forked workers that execute nothing, three this program
 * itself (`load work N`), and one is Python. */
#include <errno.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* Allocates blocks of rising sizes, frees most of them and keeps the rest to its end. */
static void work(int blocks) {
  for (int i = 0; i < blocks; i++) {
    char *block = malloc(64 + i % 1000);
    if (!block)
      exit(1);
    memset(block, 1, 64);
    if (i % 10)
      free(block);
  }
}

static void start(const char *const argv[]) {
  pid_t pid;
  int error = posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)argv, environ);
  if (error) {
    fprintf(stderr, "cannot start %s: %s\n", argv[0], strerror(error));
    exit(1);
  }
}

int main(int argc, char **argv) {
  if (argc == 3 && !strcmp(argv[1], "work")) {
    work(atoi(argv[2]));
    return 0;
  }
  if (argc != 4)
    return 2;
  long seconds = atol(argv[1]), rate = atol(argv[2]);
  const char *sh[] = {"sh", "-c", ":", NULL};
  const char *loop[] = {"sh", "-c", "for i in 1 2 3; do x=$x$i; done", NULL};
  const char *small[] = {argv[0], "work", "100", NULL};
  const char *large[] = {argv[0], "work", "2000", NULL};
  const char *python[] = {argv[3], "-c", "kept = [str(n) * 200 for n in range(1000)]", NULL};
  struct timespec next;
  clock_gettime(CLOCK_MONOTONIC, &next);
  long started = 0, failed = 0;
  for (; started < seconds * rate; started++) {
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
    next.tv_nsec += 1000000000 / rate;
    if (next.tv_nsec >= 1000000000) {
      next.tv_sec++;
      next.tv_nsec -= 1000000000;
    }
    switch (started % 10) {
    case 0: case 4: start(sh); break;
    case 2: case 6: start(loop); break;
    case 1: case 7: start(small); break;
    case 5: start(large); break;
    case 3: start(python); break;
    default:
      switch (fork()) {
      case -1: return 1;
      case 0: work(500); _exit(0);
      }
    }
    int status;
    while (waitpid(-1, &status, WNOHANG) > 0)
      failed += status != 0;
  }
  int status;
  while (wait(&status) > 0)
    failed += status != 0;
  printf("%ld %ld\n", started, failed);
  return 0;
}
