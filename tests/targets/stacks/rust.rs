//! Allocates in the ways of Rust, each a probe.
//!
//!   rust TRUTH   ends with code 7

use std::{
    alloc::{GlobalAlloc, Layout, System},
    collections::BTreeMap,
    ffi::{CString, c_char, c_int},
    hint::black_box,
    panic,
    process::exit,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
};

unsafe extern "C" {
    fn probe(way: c_int, path: *const c_char);
    fn write_stacks(file: *const c_char);
}

/// `enum way` of probe.h.
const MALLOC: c_int = 0;

/// Probes on each allocation, whatever function of the library makes it.
struct Probed;

static ENABLED: AtomicBool = AtomicBool::new(false);

// SAFETY: allocates as `System` does.
unsafe impl GlobalAlloc for Probed {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if ENABLED.load(Relaxed) {
            unsafe { probe(MALLOC, c"*".as_ptr()) };
        }
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static GLOBAL: Probed = Probed;

#[inline(never)]
fn grows(n: u64) -> Vec<u64> {
    let mut numbers = Vec::new();
    for i in 0..n {
        numbers.push(black_box(i));
    }
    numbers
}

#[inline(never)]
fn formats(n: u64) -> String {
    format!("{n:?} and {:>20}", format!("{:?}", [n; 3]))
}

#[inline(never)]
fn maps(n: u64) -> BTreeMap<u64, String> {
    (0..n).map(|i| (i * 7 % n, i.to_string())).collect()
}

#[inline(never)]
fn recurses(depth: u64) -> Box<dyn Fn() -> u64> {
    match depth {
        0 => Box::new(|| 0),
        _ => {
            let inner = recurses(depth - 1);
            Box::new(move || inner() + depth)
        }
    }
}

#[inline(never)]
fn sorts(n: u64) -> Vec<String> {
    let mut words: Vec<_> = (0..n).map(|i| (i * 31 % 17).to_string()).collect();
    words.sort_by_key(|word| word.chars().rev().collect::<String>());
    words
}

struct AllocatesWhenDropped;

impl Drop for AllocatesWhenDropped {
    #[inline(never)]
    fn drop(&mut self) {
        black_box(grows(1));
    }
}

#[inline(never)]
fn unwinds(n: u64) {
    let _guard = AllocatesWhenDropped;
    panic::panic_any(black_box(n));
}

fn all() {
    black_box(grows(40));
    black_box(formats(5));
    black_box(maps(30));
    black_box(recurses(6)());
    black_box(sorts(12));
    let panicked = panic::catch_unwind(|| unwinds(5));
    assert!(panicked.is_err());
}

fn main() {
    panic::set_hook(Box::new(|_| {}));
    let truth = CString::new(std::env::args().nth(1).unwrap()).unwrap();
    ENABLED.store(true, Relaxed);
    for _ in 0..2 {
        all();
        thread::spawn(all).join().unwrap();
    }
    ENABLED.store(false, Relaxed);
    unsafe { write_stacks(truth.as_ptr()) };
    exit(7);
}
