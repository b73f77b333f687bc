//! A Rust program whose global allocator is a statically linked jemalloc.
//! Does a known number of allocations at functions named `site_*` and writes
//! the truth, one JSON line per site, to the file named by the first argument.

use std::{
    env, fs,
    hint::black_box,
    io::{self, Write},
    process,
};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[inline(never)]
fn site_box() -> Box<[u64; 16]> {
    black_box(Box::new(black_box([7; 16])))
}

#[inline(never)]
fn site_vec(bytes: usize) -> Vec<u8> {
    black_box(Vec::with_capacity(black_box(bytes)))
}

#[inline(never)]
fn site_zeroed(bytes: usize) -> Vec<u8> {
    black_box(vec![0; black_box(bytes)])
}

#[repr(align(4096))]
struct Page(#[allow(dead_code, reason = "only its layout matters")] [u8; 4096]);

#[inline(never)]
fn site_aligned() -> Box<Page> {
    black_box(Box::new(black_box(Page([1; 4096]))))
}

#[inline(never)]
fn site_grow(block: &mut Vec<u8>, bytes: usize) {
    block.reserve_exact(black_box(bytes));
    black_box(block);
}

#[inline(never)]
fn site_thread() -> Box<[u16; 24]> {
    black_box(Box::new(black_box([3; 24])))
}

fn main() -> io::Result<()> {
    let truth = env::args_os().nth(1).ok_or(io::ErrorKind::InvalidInput)?;

    let mut boxes: Vec<_> = (0..100).map(|_| site_box()).collect();
    boxes.truncate(60);

    let mut vecs: Vec<_> = (1..=50).map(|n| site_vec(n * 10)).collect();
    vecs.drain(..20);

    let zeroed: Vec<_> = (0..30).map(|_| site_zeroed(1000)).collect();
    let aligned: Vec<_> = (0..5).map(|_| site_aligned()).collect();

    // Allocated at one site, grown at another, which then owns it.
    let mut grown = site_vec(64);
    for bytes in [1_000, 100_000, 3_000_000] {
        site_grow(&mut grown, bytes);
    }

    let sent: Vec<Box<[u16; 24]>> = (0..4)
        .map(|_| std::thread::spawn(|| (0..25).map(|_| site_thread()).collect::<Vec<_>>()))
        .flat_map(|thread| thread.join().unwrap_or_default())
        .collect();
    let kept: Vec<_> = sent.into_iter().take(40).collect();

    let mut file = fs::File::create(truth)?;
    let mut line = |site: &str, live: (usize, usize), alloc: (usize, usize)| {
        writeln!(
            file,
            r#"{{"tgid":{},"site":"{site}","live_bytes":{},"live_count":{},"alloc_bytes":{},"alloc_count":{}}}"#,
            process::id(),
            live.0,
            live.1,
            alloc.0,
            alloc.1
        )
    };
    line("box", (60 * 128, 60), (100 * 128, 100))?;
    line(
        "vec",
        ((21..=50).map(|n| n * 10).sum(), 30),
        ((1..=50).map(|n| n * 10).sum::<usize>() + 64, 51),
    )?;
    line("zeroed", (30_000, 30), (30_000, 30))?;
    line("aligned", (5 * 4096, 5), (5 * 4096, 5))?;
    line("grow", (3_000_000, 1), (3_101_000, 3))?;
    line("thread", (40 * 48, 40), (100 * 48, 100))?;

    // Outstanding at the end: nothing may be dropped before the process ends.
    black_box((&boxes, &vecs, &zeroed, &aligned, &grown, &kept));
    process::exit(0)
}
