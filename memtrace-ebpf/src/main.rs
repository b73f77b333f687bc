//! memtrace's kernel side: one file per family of probes, the maps in
//! [`maps`], every loss counted in [`emit`]. Nothing here decides what an event
//! means: the ledger on the user side does.
#![no_std]
#![no_main]
#![allow(internal_features, reason = "see `atomic`")]
#![feature(core_intrinsics)]

mod arch;
mod atomic;
mod caller;
mod calls;
mod code;
mod codes;
mod device;
mod elements;
mod emit;
mod exceptions;
mod facts;
mod imports;
mod kernel;
mod kernel_stack;
mod lifecycle;
mod loops;
mod malloc;
mod maps;
mod measure;
mod memo;
mod memory;
mod places;
mod python;
mod reads;
mod ring;
mod rows;
mod scratch;
mod stack;
mod subject;
mod thread;
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
