//! The library of `memtrace record --preload`: the malloc family, each function with a place for a probe.
//!
//! A function calls the one that the program would have called without it, and then runs an instruction that does nothing,
//! `nop` of five bytes. A probe there costs one exception, and from Linux 6.18 on none at all: the kernel replaces such an
//! instruction by a call. A function of a C library needs a probe at its entry and one at its return.
//!
//! There are no such places for another allocator than the C library's: its own functions are probed as ever.
//!
//! It has no runtime, needs no other library, and must run on any C library. `build.rs` compiles it.

#![no_std]

use core::{
    arch::naked_asm,
    ffi::{CStr, c_char, c_int, c_void},
    panic::PanicInfo,
};

/// Any of the functions. Those that take fewer arguments ignore the others.
type Function = unsafe extern "C" fn(usize, usize, usize) -> usize;

/// The functions, in the order of [`NEXT`].
const NAMES: [&CStr; 9] = [
    c"malloc",
    c"free",
    c"calloc",
    c"realloc",
    c"memalign",
    c"aligned_alloc",
    c"posix_memalign",
    c"valloc",
    c"pvalloc",
];

/// Those that the program would have called. Each one searches for all of them when it is called first.
static mut NEXT: [Function; NAMES.len()] = [
    first::<0>, first::<1>, first::<2>, first::<3>, first::<4>, first::<5>, first::<6>, first::<7>,
    first::<8>,
];

/// Which of them are the C library's own.
static mut IS_LIBC: [bool; NAMES.len()] = [false; NAMES.len()];

/// Where a probe goes, if the C library's functions are called. The stack pointer leads to the return address. Where the
/// function has returned, `rax` has its result, `rdi` its first argument, `rsi` the size in bytes, and `r9` the return
/// address.
macro_rules! site {
    ($name:literal) => {
        concat!(
            "cmp byte ptr [rip + {is_libc} + {place}], 0\n",
            "je 9f\n",
            ".type memtrace_preload_",
            $name,
            ", @function\n",
            "memtrace_preload_",
            $name,
            ":\n",
            ".byte 0x0f, 0x1f, 0x44, 0, 0\n",
            ".size memtrace_preload_",
            $name,
            ", 5\n",
            "9:\n",
        )
    };
}

/// A function that gives memory. Its three first arguments are kept over the call, `$size` moves the size to `rsi`, and
/// `$first` comes before all.
macro_rules! gives {
    ($name:ident, $place:literal, $site:literal, $size:literal, $first:expr) => {
        /// See the module.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                $first,
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "push rsi",
                ".cfi_adjust_cfa_offset 8",
                "push rdx",
                ".cfi_adjust_cfa_offset 8",
                "call qword ptr [rip + {next} + 8 * {place}]",
                "pop rdx",
                ".cfi_adjust_cfa_offset -8",
                "pop rsi",
                ".cfi_adjust_cfa_offset -8",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                $size,
                "mov r9, qword ptr [rsp]",
                site!($site),
                "ret",
                ".cfi_endproc",
                next = sym NEXT,
                place = const $place,
                is_libc = sym IS_LIBC,
            )
        }
    };
}

gives!(malloc, 0, "malloc", "mov rsi, rdi", "");
gives!(calloc, 2, "calloc", "imul rsi, rdi", "");
// Two places: the block is released first, and given when the call has returned.
gives!(realloc, 3, "realloc", "", site!("begin_realloc"));
gives!(memalign, 4, "memalign", "", "");
gives!(aligned_alloc, 5, "aligned_alloc", "", "");
gives!(posix_memalign, 6, "posix_memalign", "mov rsi, rdx", "");
gives!(valloc, 7, "valloc", "mov rsi, rdi", "");
gives!(pvalloc, 8, "pvalloc", "mov rsi, rdi", "");

/// Its place comes first: another thread may be given the block as soon as it is released.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn free() {
    naked_asm!(
        ".cfi_startproc",
        site!("free"),
        "jmp qword ptr [rip + {next} + 8 * {place}]",
        ".cfi_endproc",
        next = sym NEXT,
        place = const 1,
        is_libc = sym IS_LIBC,
    )
}

/// The first call of a function.
unsafe extern "C" fn first<const PLACE: usize>(a: usize, b: usize, c: usize) -> usize {
    // SAFETY: the arguments are those of the function that is found. Threads that search at the same time find the same.
    unsafe {
        find_all();
        NEXT[PLACE](a, b, c)
    }
}

/// Stands for a function that no other library has: a program that needs it would not have started without this one.
unsafe extern "C" fn missing(_: usize, _: usize, _: usize) -> usize {
    0
}

/// Finds the functions that come next in the order in which the loader searches.
///
/// Not with dlsym(3), which may call malloc, and needs another library where the C library is older.
unsafe fn find_all() {
    let mut search = Search {
        has_passed: false,
        found: [None; NAMES.len()],
        is_libc: [false; NAMES.len()],
    };
    // SAFETY: the callback gets the search. Whoever reads meanwhile finds an old or a new value.
    unsafe {
        dl_iterate_phdr(look_at, (&raw mut search).cast());
        let mut place = 0;
        for found in search.found {
            NEXT[place] = found.unwrap_or(missing);
            place += 1;
        }
        IS_LIBC = search.is_libc;
    }
}

struct Search {
    /// This library has been passed.
    has_passed: bool,
    found: [Option<Function>; NAMES.len()],
    /// Found in the C library.
    is_libc: [bool; NAMES.len()],
}

/// The callback of dl_iterate_phdr(3), for each library in the order of loading.
unsafe extern "C" fn look_at(info: *const Info, _size: usize, search: *mut c_void) -> c_int {
    // SAFETY: what `find_all` has passed, and what the loader gives.
    let (info, search) = unsafe { (&*info, &mut *search.cast::<Search>()) };
    if !search.has_passed {
        search.has_passed = info.contains(look_at as *const () as usize);
        return 0;
    }
    // SAFETY: a library that is loaded.
    let Some(symbols) = (unsafe { Symbols::of(info) }) else {
        return 0;
    };
    let is_libc = symbols.find(c"__libc_start_main").is_some();
    for place in 0..NAMES.len() {
        if search.found[place].is_none()
            && let Some(address) = symbols.find(NAMES[place])
        {
            // SAFETY: a function of that name has this type.
            search.found[place] = Some(unsafe { core::mem::transmute::<usize, Function>(address) });
            search.is_libc[place] = is_libc;
        }
    }
    0
}

unsafe extern "C" {
    fn dl_iterate_phdr(
        callback: unsafe extern "C" fn(*const Info, usize, *mut c_void) -> c_int,
        data: *mut c_void,
    ) -> c_int;
}

/// `struct dl_phdr_info` (dl_iterate_phdr(3)), as far as it is used.
#[repr(C)]
struct Info {
    base: usize,
    name: *const c_char,
    headers: *const Header,
    count: u16,
}

/// `Elf64_Phdr` (elf(5)).
#[repr(C)]
struct Header {
    kind: u32,
    flags: u32,
    offset: u64,
    address: usize,
    physical: usize,
    file_size: u64,
    size: usize,
    align: u64,
}

// elf(5)
const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const DT_NULL: usize = 0;
const DT_HASH: usize = 4;
const DT_STRTAB: usize = 5;
const DT_SYMTAB: usize = 6;
const DT_GNU_HASH: usize = 0x6fff_fef5;
const STT_FUNC: u8 = 2;

impl Info {
    fn headers(&self) -> &[Header] {
        // SAFETY: the loader gives an array of this length.
        unsafe { core::slice::from_raw_parts(self.headers, self.count.into()) }
    }

    fn contains(&self, address: usize) -> bool {
        self.headers().iter().any(|header| {
            let start = self.base.wrapping_add(header.address);
            header.kind == PT_LOAD && address.wrapping_sub(start) < header.size
        })
    }
}

/// `Elf64_Sym` (elf(5)).
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: usize,
    size: u64,
}

/// The dynamic symbols of a library.
struct Symbols {
    base: usize,
    table: *const Symbol,
    names: *const c_char,
    count: usize,
}

impl Symbols {
    unsafe fn of(info: &Info) -> Option<Self> {
        let dynamic = info
            .headers()
            .iter()
            .find(|header| header.kind == PT_DYNAMIC)?;
        let mut entry = info.base.wrapping_add(dynamic.address) as *const [usize; 2];
        let (mut table, mut names, mut hash, mut gnu_hash) = (0, 0, 0, 0);
        loop {
            // SAFETY: the list ends with DT_NULL.
            let [tag, value] = unsafe { entry.read() };
            // Some loaders have made these addresses absolute.
            let address = match value < info.base {
                true => value.wrapping_add(info.base),
                false => value,
            };
            match tag {
                DT_NULL => break,
                DT_SYMTAB => table = address,
                DT_STRTAB => names = address,
                DT_HASH => hash = address,
                DT_GNU_HASH => gnu_hash = address,
                _ => {}
            }
            entry = entry.wrapping_add(1);
        }
        if table == 0 || names == 0 {
            return None;
        }
        // SAFETY: the tables of a library that is loaded.
        let count = unsafe {
            match (hash, gnu_hash) {
                (0, 0) => return None,
                (0, gnu_hash) => count_by_gnu_hash(gnu_hash as *const u32),
                // The number of chains.
                (hash, _) => (hash as *const u32).add(1).read() as usize,
            }
        };
        Some(Self {
            base: info.base,
            table: table as *const Symbol,
            names: names as *const c_char,
            count,
        })
    }

    /// The address of a function that the library defines.
    fn find(&self, name: &CStr) -> Option<usize> {
        (0..self.count).find_map(|index| {
            // SAFETY: one of the symbols, and its name.
            let symbol = unsafe { &*self.table.add(index) };
            let is_defined = symbol.section != 0 && symbol.info & 15 == STT_FUNC;
            let is_it = is_defined
                // SAFETY: as above.
                && unsafe { CStr::from_ptr(self.names.add(symbol.name as usize)) } == name;
            is_it.then(|| self.base.wrapping_add(symbol.value))
        })
    }
}

/// One more than the last symbol: the end of the longest chain (the format of `.gnu.hash`: binutils, `bfd/elflink.c`).
unsafe fn count_by_gnu_hash(table: *const u32) -> usize {
    // SAFETY: a table of this format.
    unsafe {
        let [buckets, first, bloom, _] = table.cast::<[u32; 4]>().read().map(|word| word as usize);
        let bucket = table.add(4 + 2 * bloom);
        let chain = bucket.add(buckets);
        let mut last = 0;
        for index in 0..buckets {
            last = last.max(bucket.add(index).read() as usize);
        }
        if last < first {
            return first;
        }
        while chain.add(last - first).read() & 1 == 0 {
            last += 1;
        }
        last + 1
    }
}

#[panic_handler]
fn panic(_: &PanicInfo) -> ! {
    // SAFETY: ends the program, as abort(3) does.
    unsafe { core::arch::asm!("ud2", options(noreturn)) }
}
