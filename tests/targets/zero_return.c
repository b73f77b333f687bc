/* Stacks that end at a return address of zero, and then others from the same place that do not: the words that the
 * first ones have read are not all that the second ones depend on. */
#include <stdlib.h>

enum { TIMES = 50 };

static _Alignas(16) char stack[1 << 16];
void *kept;
void *back;

void enter(void *top, void *return_address);
void leave(void);
extern char called[];

/* Callee-saved registers of main are on its own stack while the other one is in use. */
__asm__(".text\n"
        ".type enter, @function\n"
        "enter:\n"
        "    push %rbp\n"
        "    push %rbx\n"
        "    push %r12\n"
        "    push %r13\n"
        "    push %r14\n"
        "    push %r15\n"
        "    mov %rsp, back(%rip)\n"
        "    mov %rdi, %rsp\n"
        "    push %rsi\n"
        "    jmp outermost\n"
        ".type leave, @function\n"
        "leave:\n"
        "    mov back(%rip), %rsp\n"
        "    pop %r15\n"
        "    pop %r14\n"
        "    pop %r13\n"
        "    pop %r12\n"
        "    pop %rbx\n"
        "    pop %rbp\n"
        "    ret\n"
        ".type caller, @function\n"
        "caller:\n"
        "    .cfi_startproc\n"
        "    .cfi_undefined rip\n"
        "    nop\n"
        "called:\n"
        "    nop\n"
        "    .cfi_endproc\n");

static __attribute__((noinline)) void allocate(void)
{
    kept = malloc(1000);
    __asm__ volatile("" ::: "memory");
}

__attribute__((used, noinline, visibility("hidden"))) void outermost(void)
{
    allocate();
    leave();
    __builtin_unreachable();
}

int main(void)
{
    char *top = stack + sizeof stack;
    for (int i = 0; i < TIMES; i++)
        enter(top, NULL);
    for (int i = 0; i < TIMES; i++)
        enter(top, called);
    return 0;
}
