//! Advice in words.

use crate::{
    analysis::verdict::{Advice, Longer, Verdict},
    frames::Language,
};

/// The words of all advice of a verdict.
pub(super) fn all(verdict: &Verdict) -> Vec<String> {
    let advice = verdict.next.iter();
    advice.map(|of| words(of, verdict.tgid)).collect()
}

/// The words of one piece of advice for process `tgid`.
pub(super) fn words(advice: &Advice, tgid: u32) -> String {
    let text = match advice {
        Advice::RecordLonger(longer) => return self::longer(longer),
        Advice::ConfirmLimit(longer) => {
            return format!("to confirm the limit, {}", self::longer(longer));
        }
        Advice::RecordIntervals { points, seconds } => {
            return format!(
                "record at least {points:.0} intervals: `memtrace record -d {seconds:.0}s …`, or use shorter ones (`--interval 100ms`)"
            );
        }
        Advice::OutliveIntervals { seconds } => {
            return format!(
                "record longer: `memtrace record -d {seconds:.0}s …`; for a program that ends sooner, use shorter intervals (`--interval 50ms`)"
            );
        }
        Advice::LoseLess => {
            "avoid losses: `memtrace record --ring-buffer 512m …`, or attach after start-up"
        }
        Advice::RecordHeap => {
            "malloc was not recorded: record without `--no-heap` to find the line"
        }
        Advice::LookAtSites => "look at the sites below, the fastest growing first",
        Advice::FindKeeper => {
            "find what still references these blocks, and where they should be freed"
        }
        Advice::Attach => {
            "attach while it runs, `memtrace record -p PID …`: its memory is then searched for what keeps these blocks"
        }
        Advice::RecordObjects => {
            "to see each object, launch it with `memtrace record --python-objects -- COMMAND`"
        }
        Advice::SearchHolders => {
            "record without `--no-holders` and `--no-stop`: the memory is then searched for what keeps these blocks"
        }
        Advice::AwaitSearch => {
            "record again, and wait for the search at the end: it looks for what keeps these blocks"
        }
        Advice::FindUnseenKeeper => {
            "look where these blocks should be freed: the search did not find what keeps them"
        }
        Advice::LimitContainer => {
            "limit the size of that container, or remove entries that are no longer needed"
        }
        Advice::LimitList => {
            "limit that list where it is filled, or remove items that are no longer needed"
        }
        Advice::LimitBuffer => "empty that buffer, or write it out, where it is enlarged",
        Advice::LimitDict => {
            "limit that dict where it is filled, or delete keys that are no longer needed"
        }
        Advice::LowerLimit => {
            "this container has a limit: lower it if its items take too much memory"
        }
        Advice::LimitCache => {
            "set `maxsize` in the decorator of that function; its `cache_clear()` empties the cache"
        }
        Advice::CutChain => {
            "cut the chain: clear the link to the part of it that is no longer needed"
        }
        Advice::DropReference => "drop that reference when the blocks are no longer needed",
        Advice::DropGraph => {
            "the graph of autograd keeps every tensor that it was made from: keep `x.detach()` or `x.item()` in place of x, or compute it under `torch.no_grad()`"
        }
        Advice::DropLikelyGraph => {
            "probably a graph of autograd keeps these, because operations of one grow, too: keep `x.detach()` or `x.item()` in place of x, or compute it under `torch.no_grad()`"
        }
        Advice::DropTraceback => {
            "the traceback of an exception keeps the local variables of all its frames: keep `str(error)`, or call `error.with_traceback(None)` first"
        }
        Advice::RenewMessage => {
            "a message or an arena of protobuf keeps its memory when it is cleared: delete it, and make a new one"
        }
        Advice::BreakCycle => {
            "break the cycle, for example with a weak reference, or ensure that gc.collect() runs"
        }
        Advice::BreakHiddenCycle => {
            "break the cycle by hand where the object is no longer needed, or give its type a `tp_traverse`"
        }
        Advice::GiveReferenceBack => {
            "look for the missing Py_DECREF in the native code that handles these objects; if it is a package's, try another version and report it"
        }
        Advice::FreeInTime(language) => free_in_time(*language),
        Advice::OwnOneWay(language) => own_one_way(*language),
        Advice::LookAtMappings => {
            return format!(
                "look at the sites below; count mappings with `wc -l /proc/{tgid}/maps`"
            );
        }
        Advice::ListMappings => {
            return format!(
                "list the mappings with `sort /proc/{tgid}/maps`; `/proc/sys/vm/max_map_count` has the limit"
            );
        }
        Advice::Unmap => {
            "call munmap() for these mappings when they are no longer needed; if an allocator of your own maps them, look for the caller that gives nothing back"
        }
        Advice::KeepSymbols => {
            "keep the symbols of that file, and record again: without them, code that takes this memory may be an allocator that memtrace does not know"
        }
        Advice::LookAtDeviceSites => "look at the sites below in the GPU layers",
        Advice::GiveUnusedBack(way) => {
            return format!(
                "{way} gives it back, which helps other processes on the GPU but not this one"
            );
        }
        Advice::CacheLess(text) | Advice::AgainstFragmentation(text) | Advice::LookInside(text) => {
            text
        }
        Advice::CheckRequest => "check the shapes and types that give the size of this request",
        Advice::ListDeviceProcesses => "`nvidia-smi` shows which processes hold memory on the GPU",
        Advice::LookForDeviceProcesses => {
            "`nvidia-smi` shows whether other processes hold memory on the GPU"
        }
        Advice::FreeDeviceMemory => {
            "free memory that the lines above hold, or use less: smaller batches, no gradients in evaluation, checkpointing"
        }
        Advice::UseLikeSizes => "make sizes vary less: pad batches to the same length",
        Advice::PinFewer => {
            "use fewer or smaller page-locked buffers (pin_memory=False), and empty the runtime's cache of them"
        }
        Advice::KeepFewerPinned => {
            "keep fewer such buffers alive at once: the runtime caches freed ones for reuse"
        }
        Advice::FindAllocator => {
            return format!(
                "find out which allocator the process uses (`memtrace probes -p {tgid}`), and how to make it give memory back"
            );
        }
        Advice::ReadManual(name) => {
            return format!("see the manual of {name} for how to give memory back");
        }
        Advice::SetAllocator { name, setting } => return format!("{name}: {setting}"),
        Advice::SetCache(cache) => return format!("{}: {}", cache.name, cache.setting),
        Advice::FreezeBeforeFork => {
            "in Python, call `gc.freeze()` before the fork, or use the `spawn` start method"
        }
        Advice::ShareArrays => {
            "in Python, keep shared data in arrays or memory maps, not in objects with reference counts"
        }
        Advice::LeaveReadOnly => {
            "find what writes to memory from before the fork, and leave that memory read-only afterwards"
        }
        Advice::ListDescriptors => {
            return format!(
                "list them with `ls -l /proc/{tgid}/fd`; find who opens them with `strace -f -e trace=desc -p {tgid}`"
            );
        }
        Advice::EndChildren => {
            return format!(
                "list them with `ps -o pid,etime,rss,args --ppid {tgid}`; the line that starts them must end each, and wait for it"
            );
        }
        Advice::RunSlabtop => {
            "run `slabtop -o`, and check whether the memory stays after the process exits"
        }
        Advice::LazilyFreed => {
            "nothing to fix: the kernel reclaims these pages under memory pressure"
        }
        Advice::FreeAtOnce => {
            "to make RSS drop at once: jemalloc MALLOC_CONF=muzzy_decay_ms:0, Go GODEBUG=madvdontneed=1"
        }
        Advice::CleanPages => {
            "nothing to fix: the kernel reclaims clean file pages under memory pressure"
        }
        Advice::DropBehindReader => {
            "to keep it small, call madvise(MADV_DONTNEED) or posix_fadvise(POSIX_FADV_DONTNEED) behind the reader"
        }
        Advice::FindOthers => "find which other processes grow: `ps aux --sort=-rss | head`",
        Advice::ListShared => {
            return format!(
                "check `ls -l /dev/shm`, `ipcs -m`, and open descriptors of deleted files: `ls -l /proc/{tgid}/fd | grep deleted`"
            );
        }
        Advice::ListSharedOfMachine => {
            "find what grows: `df -h -t tmpfs`, `ipcs -m`, and memfds: `ls -l /proc/*/fd | grep memfd`"
        }
        Advice::DisableHugePages => {
            "turn huge pages off for the process with prctl(PR_SET_THP_DISABLE), or for the machine with `echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`"
        }
        Advice::SetHugePagesOfAllocator => {
            "glibc: GLIBC_TUNABLES=glibc.malloc.hugetlb=0; jemalloc: MALLOC_CONF=thp:never"
        }
        Advice::UseThreadPool => {
            "use a thread pool: a server that starts a thread for each request causes this"
        }
        Advice::JoinThreads => {
            "join each thread when it ends, or detach it when it starts: until then its stack stays"
        }
        Advice::LimitThreads => "find why these threads do not end, or limit their number",
        Advice::KeepOneThreadPool => {
            "with OpenMP or MKL, set OMP_NUM_THREADS and MKL_NUM_THREADS to the same value, so that they keep one pool"
        }
    };
    text.to_owned()
}

fn free_in_time(language: Option<Language>) -> &'static str {
    match language {
        Some(Language::C) => {
            "free these blocks before the last pointer to them is overwritten or goes out of scope"
        }
        Some(Language::Cpp) => {
            "delete these blocks before the last pointer to them is gone, or let a std::unique_ptr own them"
        }
        Some(Language::Rust) => {
            "look for what gives up ownership without a drop: `mem::forget`, `Box::leak`, `into_raw`, unsafe code"
        }
        Some(Language::Python) => {
            "the native code on the stack lost these blocks: if it is a package's, try another version and report it"
        }
        Some(Language::Cgo) => {
            "call C.free on these blocks when Go code no longer needs them: its collector does not free memory of C"
        }
        None => "look for code that drops the last pointer to these blocks and does not free them",
    }
}

fn own_one_way(language: Option<Language>) -> &'static str {
    match language {
        Some(Language::Cpp) => {
            "let one of them own the other, and not the other way round: make one pointer a std::weak_ptr"
        }
        Some(Language::Rust) => {
            "let one of them own the other, and not the other way round: make one pointer a `Weak`"
        }
        Some(Language::Python) => {
            "these are native blocks: if they are a package's, try another version and report it"
        }
        _ => "let one of them own the other, and not the other way round",
    }
}

fn longer(longer: &Longer) -> String {
    let Longer { times, seconds } = longer;
    let length = round(*seconds);
    format!("record {times:.0} times as long: `memtrace record -d {length} …`")
}

/// About this time, as a person would say it: `40s`, `4m`.
fn round(seconds: f64) -> String {
    let rounded = |unit: f64| (seconds / unit).round() * unit;
    match seconds {
        ..20.0 => format!("{seconds:.0}s"),
        ..100.0 => format!("{:.0}s", rounded(10.0)),
        ..1200.0 => format!("{:.0}m", rounded(60.0) / 60.0),
        ..7200.0 => format!("{:.0}m", rounded(600.0) / 60.0),
        _ => format!("{:.0}h", rounded(3600.0) / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_round() {
        let rounded = [4.0, 31.0, 62.4, 181.0, 240.0, 3_700.0, 14_500.0].map(round);
        assert_eq!(rounded, ["4s", "30s", "60s", "3m", "4m", "60m", "4h"]);
    }
}
