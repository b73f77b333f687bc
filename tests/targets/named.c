/* Allocates 1001 bytes at one site for each `1` on stdin, and 1002 at another for each `2`; each block stays.
 * Says at each end of a line how many there are. */
#include <stdio.h>
#include <stdlib.h>

#define SITE(name, size)                                                     \
    __attribute__((noinline)) static void name(void) {                       \
        volatile char *block = malloc(size);                                 \
        *block = 1;                                                          \
    }

SITE(site_first, 1001)
SITE(site_second, 1002)

int main(void) {
    int count = 0;
    puts("ready");
    fflush(stdout);
    for (int c; (c = getchar()) != EOF;) {
        count += c == '1' || c == '2';
        if (c == '1')
            site_first();
        if (c == '2')
            site_second();
        if (c == '\n') {
            printf("allocated %d\n", count);
            fflush(stdout);
        }
    }
    return 7;
}
