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
#if defined(__x86_64__)
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
#elif defined(__aarch64__)
__asm__(".text\n"
        ".type enter, %function\n"
        "enter:\n"
        "    stp x29, x30, [sp, #-96]!\n"
        "    stp x19, x20, [sp, #16]\n"
        "    stp x21, x22, [sp, #32]\n"
        "    stp x23, x24, [sp, #48]\n"
        "    stp x25, x26, [sp, #64]\n"
        "    stp x27, x28, [sp, #80]\n"
        "    mov x2, sp\n"
        "    adrp x3, back\n"
        "    str x2, [x3, :lo12:back]\n"
        "    mov sp, x0\n"
        "    mov x30, x1\n"
        "    b outermost\n"
        ".type leave, %function\n"
        "leave:\n"
        "    adrp x3, back\n"
        "    ldr x2, [x3, :lo12:back]\n"
        "    mov sp, x2\n"
        "    ldp x19, x20, [sp, #16]\n"
        "    ldp x21, x22, [sp, #32]\n"
        "    ldp x23, x24, [sp, #48]\n"
        "    ldp x25, x26, [sp, #64]\n"
        "    ldp x27, x28, [sp, #80]\n"
        "    ldp x29, x30, [sp], #96\n"
        "    ret\n"
        ".type caller, %function\n"
        "caller:\n"
        "    .cfi_startproc\n"
        "    .cfi_undefined x30\n"
        "    nop\n"
        "called:\n"
        "    nop\n"
        "    .cfi_endproc\n");
#else
#error "unknown architecture"
#endif

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
