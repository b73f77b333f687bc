//! SQLite's access to a [`Storage`] (<https://sqlite.org/vfs.html>). A connection has the one file that it is given:
//! nothing is opened by name, neither a journal nor a temporary file.

use std::{
    cell::Cell,
    collections::HashMap,
    ffi::{CStr, c_char, c_int, c_void},
    io, ptr, slice,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use rusqlite::{Connection, OpenFlags, ffi};

use super::{Storage, locks};

const NAME: &CStr = c"memtrace";

/// Bytes of a file's name: a number.
const LONGEST_NAME: usize = 32;

/// Files that a connection is about to open, by their names.
static WAITING: Mutex<Option<HashMap<u64, Box<dyn Storage>>>> = Mutex::new(None);

thread_local! {
    /// The last error of this thread's connections, by its number; 0: none.
    static LAST_ERROR: Cell<i32> = const { Cell::new(0) };
}

/// Opens a connection to the file.
pub(in crate::recording) fn connect(
    storage: impl Storage + 'static,
    flags: OpenFlags,
) -> rusqlite::Result<Connection> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    register();
    LAST_ERROR.set(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    waiting(|files| files.insert(number, Box::new(storage)));
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags_and_vfs(number.to_string(), flags, NAME);
    waiting(|files| files.remove(&number));
    connection
}

/// The system's cause of this thread's last failure.
pub(in crate::recording) fn last_error() -> Option<io::Error> {
    match LAST_ERROR.get() {
        0 => None,
        number => Some(io::Error::from_raw_os_error(number)),
    }
}

fn waiting<T>(action: impl FnOnce(&mut HashMap<u64, Box<dyn Storage>>) -> T) -> T {
    let mut files = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    action(files.get_or_insert_default())
}

fn register() {
    static DONE: OnceLock<()> = OnceLock::new();
    DONE.get_or_init(|| {
        // SAFETY: SQLite initialises itself; its default file system lives as long as the process, and so does the
        // leaked one. The default's functions for time and randomness use neither of them.
        unsafe {
            ffi::sqlite3_initialize();
            let default = ffi::sqlite3_vfs_find(ptr::null());
            if default.is_null() {
                return;
            }
            let vfs = ffi::sqlite3_vfs {
                iVersion: 2,
                szOsFile: size_of::<Handle>() as c_int,
                mxPathname: LONGEST_NAME as c_int,
                pNext: ptr::null_mut(),
                zName: NAME.as_ptr(),
                pAppData: ptr::null_mut(),
                xOpen: Some(open),
                xDelete: Some(delete),
                xAccess: Some(access),
                xFullPathname: Some(full_name),
                xDlOpen: None,
                xDlError: None,
                xDlSym: None,
                xDlClose: None,
                xGetLastError: Some(get_last_error),
                ..*default
            };
            ffi::sqlite3_vfs_register(Box::into_raw(Box::new(vfs)), 0);
        }
    });
}

/// A file as SQLite knows it.
#[repr(C)]
struct Handle {
    base: ffi::sqlite3_file,
    /// Owned.
    open: *mut Open,
}

struct Open {
    storage: Box<dyn Storage>,
    /// `SQLITE_LOCK_*`.
    lock: c_int,
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

unsafe extern "C" fn open(
    _: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    let handle = file.cast::<Handle>();
    // SAFETY: `file` has room for a handle; without methods SQLite does not close it. `name` ends with NUL.
    let number = unsafe {
        (*handle).base.pMethods = ptr::null();
        match name.is_null() {
            true => None,
            false => CStr::from_ptr(name)
                .to_str()
                .ok()
                .and_then(|name| name.parse().ok()),
        }
    };
    let Some(storage) = number.and_then(|number: u64| waiting(|files| files.remove(&number)))
    else {
        return ffi::SQLITE_CANTOPEN;
    };
    let open = Box::new(Open {
        storage,
        lock: ffi::SQLITE_LOCK_NONE,
    });
    // SAFETY: as above; `out_flags` may be null.
    unsafe {
        (*handle).open = Box::into_raw(open);
        (*handle).base.pMethods = &raw const METHODS;
        if !out_flags.is_null() {
            *out_flags = flags;
        }
    }
    ffi::SQLITE_OK
}

/// # Safety
/// `file` is open, and not in use by another call.
unsafe fn opened<'a>(file: *mut ffi::sqlite3_file) -> &'a mut Open {
    // SAFETY: `open` put it there, and only `close` takes it away. Calls of one connection do not overlap.
    unsafe { &mut *(*file.cast::<Handle>()).open }
}

/// Keeps the system's error, and turns it into SQLite's.
fn failed(error: &io::Error, code: c_int) -> c_int {
    LAST_ERROR.set(error.raw_os_error().unwrap_or(libc::EIO));
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => ffi::SQLITE_FULL,
        _ => code,
    }
}

fn done(result: io::Result<()>, code: c_int) -> c_int {
    match result {
        Ok(()) => ffi::SQLITE_OK,
        Err(error) => failed(&error, code),
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: the file is open, and closed once. Its locks end with its descriptor.
    drop(unsafe { Box::from_raw((*file.cast::<Handle>()).open) });
    ffi::SQLITE_OK
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    to: *mut c_void,
    amount: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: the file is open; `to` has room for `amount` bytes.
    let (open, buffer) = unsafe {
        let buffer = slice::from_raw_parts_mut(to.cast::<u8>(), amount as usize);
        (opened(file), buffer)
    };
    match open.storage.read_at(buffer, offset.cast_unsigned()) {
        Ok(read) if read == buffer.len() => ffi::SQLITE_OK,
        Ok(read) => {
            buffer[read..].fill(0);
            ffi::SQLITE_IOERR_SHORT_READ
        }
        Err(error) => failed(&error, ffi::SQLITE_IOERR_READ),
    }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    amount: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: the file is open; `from` has `amount` bytes.
    let (open, content) = unsafe {
        let content = slice::from_raw_parts(from.cast::<u8>(), amount as usize);
        (opened(file), content)
    };
    let written = open.storage.write_at(content, offset.cast_unsigned());
    done(written, ffi::SQLITE_IOERR_WRITE)
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, length: ffi::sqlite3_int64) -> c_int {
    // SAFETY: the file is open.
    let open = unsafe { opened(file) };
    let truncated = open.storage.truncate(length.cast_unsigned());
    done(truncated, ffi::SQLITE_IOERR_TRUNCATE)
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // SAFETY: the file is open.
    let open = unsafe { opened(file) };
    done(open.storage.commit(), ffi::SQLITE_IOERR_FSYNC)
}

unsafe extern "C" fn file_size(
    file: *mut ffi::sqlite3_file,
    size: *mut ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: the file is open.
    match unsafe { opened(file) }.storage.length() {
        Ok(length) => {
            // SAFETY: `size` is valid.
            unsafe { *size = length.cast_signed() };
            ffi::SQLITE_OK
        }
        Err(error) => failed(&error, ffi::SQLITE_IOERR_FSTAT),
    }
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: the file is open.
    let open = unsafe { opened(file) };
    let before = open.lock;
    match locks::raise(open.storage.file(), before, level) {
        Ok(now) => open.lock = now,
        Err(error) => return failed(&error, ffi::SQLITE_IOERR_LOCK),
    }
    if open.lock < level {
        return ffi::SQLITE_BUSY;
    }
    match before {
        ffi::SQLITE_LOCK_NONE => done(open.storage.begin(), ffi::SQLITE_IOERR_READ),
        _ => ffi::SQLITE_OK,
    }
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    // SAFETY: the file is open.
    let open = unsafe { opened(file) };
    if open.lock <= level {
        return ffi::SQLITE_OK;
    }
    open.lock = level;
    let lowered = locks::lower(open.storage.file(), level);
    done(lowered, ffi::SQLITE_IOERR_UNLOCK)
}

unsafe extern "C" fn check_reserved_lock(
    file: *mut ffi::sqlite3_file,
    is_reserved: *mut c_int,
) -> c_int {
    // SAFETY: the file is open.
    let open = unsafe { opened(file) };
    match locks::is_reserved(open.storage.file()) {
        Ok(reserved) => {
            let reserved = reserved || open.lock >= ffi::SQLITE_LOCK_RESERVED;
            // SAFETY: `is_reserved` is valid.
            unsafe { *is_reserved = c_int::from(reserved) };
            ffi::SQLITE_OK
        }
        Err(error) => failed(&error, ffi::SQLITE_IOERR_CHECKRESERVEDLOCK),
    }
}

unsafe extern "C" fn file_control(_: *mut ffi::sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_: *mut ffi::sqlite3_file) -> c_int {
    4096
}

unsafe extern "C" fn device_characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    0
}

/// Only of journals, and there are none.
unsafe extern "C" fn delete(_: *mut ffi::sqlite3_vfs, _: *const c_char, _: c_int) -> c_int {
    ffi::SQLITE_OK
}

/// Only of journals, and there are none.
unsafe extern "C" fn access(
    _: *mut ffi::sqlite3_vfs,
    _: *const c_char,
    _: c_int,
    exists: *mut c_int,
) -> c_int {
    // SAFETY: `exists` is valid.
    unsafe { *exists = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn full_name(
    _: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    room: c_int,
    out: *mut c_char,
) -> c_int {
    // SAFETY: `name` ends with NUL, and `out` has the room.
    unsafe {
        let name = CStr::from_ptr(name).to_bytes_with_nul();
        if name.len() > room as usize {
            return ffi::SQLITE_CANTOPEN;
        }
        ptr::copy_nonoverlapping(name.as_ptr().cast(), out, name.len());
    }
    ffi::SQLITE_OK
}

unsafe extern "C" fn get_last_error(_: *mut ffi::sqlite3_vfs, _: c_int, _: *mut c_char) -> c_int {
    LAST_ERROR.get()
}
