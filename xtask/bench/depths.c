/* Target of `cargo xtask bench`: allocates at stacks of known depths. Says
 * "ready", waits for a byte on stdin, does its work.
 *
 *   depths FRAMES COUNT   COUNT blocks, each of a stack of FRAMES frames, and freed
 *
 * Of the frames, four are main and its callers (glibc's two and _start). The
 * others are functions of different shapes: few and many saved registers,
 * large locals, a frame whose size is known at run time only.
 */
#include <alloca.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { ABOVE = 4, BLOCK = 64 };

typedef uint64_t shape(int depth, uint64_t a, uint64_t b);
static shape few, many, large, variable;
/* Through memory that the compiler does not know, so that each call remains one. */
static shape *volatile shapes[] = {few, many, large, variable};

static void *volatile sink;

#define BELOW(a, b) shapes[depth & 3](depth - 1, a, b)

__attribute__((always_inline)) static inline void allocate(void)
{
    sink = malloc(BLOCK);
    free(sink);
}

__attribute__((noinline)) static uint64_t few(int depth, uint64_t a, uint64_t b)
{
    if (depth == 0) {
        allocate();
        return a;
    }
    return BELOW(a + 1, b) + 1;
}

__attribute__((noinline)) static uint64_t many(int depth, uint64_t a, uint64_t b)
{
    if (depth == 0) {
        allocate();
        return a;
    }
    uint64_t c = a * 3, d = b * 5, e = a ^ b, f = a + b, g = a - b;
    return BELOW(c, d) + (a ^ b ^ c ^ d ^ e ^ f ^ g);
}

__attribute__((noinline)) static uint64_t large(int depth, uint64_t a, uint64_t b)
{
    volatile char buffer[120];
    buffer[a % sizeof buffer] = (char)b;
    if (depth == 0)
        allocate();
    return (depth == 0 ? a : BELOW(b, a)) + (uint64_t)buffer[a % sizeof buffer];
}

__attribute__((noinline)) static uint64_t variable(int depth, uint64_t a, uint64_t b)
{
    size_t size = 16 + (a & 31);
    volatile char *buffer = alloca(size);
    buffer[b % size] = 1;
    if (depth == 0)
        allocate();
    return (depth == 0 ? b : BELOW(a, b)) + (uint64_t)buffer[b % size];
}

int main(int argc, char **argv)
{
    int frames = argc == 3 ? atoi(argv[1]) : 0;
    uint64_t count = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
    if (frames <= ABOVE || count == 0) {
        fprintf(stderr, "usage: depths FRAMES COUNT, at least %d frames\n", ABOVE + 1);
        return 2;
    }
    puts("ready");
    fflush(stdout);
    if (getchar() == EOF)
        return 1;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += shapes[i & 3](frames - ABOVE - 1, i, sum);
    return sum == 1;
}
