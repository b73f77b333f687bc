//! memtrace's kernel side: one file per family of probes, the maps in
//! [`maps`], every loss counted in [`emit`]. Nothing here decides what an event
//! means: the ledger on the user side does.
#![no_std]
#![no_main]
#![allow(internal_features, reason = "see `atomic`")]
#![feature(core_intrinsics)]

mod arch;
mod argument;
mod atomic;
mod caller;
mod calls;
mod code;
mod codes;
mod cookie;
mod device;
mod elements;
mod emit;
mod exceptions;
mod facts;
#[cfg(feature = "legacy")]
mod held;
mod imports;
mod interpreter;
mod kernel;
mod kernel_stack;
mod lifecycle;
mod loops;
#[cfg(not(feature = "legacy"))]
mod malloc;
mod maps;
mod measure;
mod memo;
mod memory;
mod places;
mod python;
mod python_code;
mod reads;
#[cfg_attr(feature = "legacy", path = "ring_of_kernel.rs")]
mod ring;
mod rows;
mod scratch;
mod stack;
mod stack_memory;
mod subject;
mod thread;
#[cfg_attr(
    feature = "legacy",
    expect(dead_code, reason = "only sessions predict results")
)]
mod thread_cache;
mod timing;
mod tracepoint;
mod unwind;
mod verify;
mod vm;
mod walks;

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo) -> ! {
    loop {}
}

/// The kernel offers helpers such as `bpf_probe_read_user` to GPL-compatible programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
