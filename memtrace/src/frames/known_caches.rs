//! The only table of library caches, recognised by the functions that fill them.

use super::{Frame, installed, symbol::plain};

/// A cache, and the setting of its limit.
#[derive(Debug, PartialEq)]
pub(crate) struct KnownCache {
    pub(crate) name: &'static str,
    /// The default limit; `None` if there is no limit.
    pub(crate) limit: Option<&'static str>,
    /// The setting of the limit, or a way to empty the cache.
    pub(crate) setting: &'static str,
    filled_by: FilledBy,
}

/// The way in which a frame identifies it.
#[derive(Debug, PartialEq)]
enum FilledBy {
    /// A native function with this in its name, of a file whose name begins like one of these.
    Native(&'static [&'static str], &'static str),
    /// A Python function of a file of the standard library, or of a package.
    Python(&'static str, &'static str),
}
use FilledBy::{Native, Python};

/// Files of CPython.
const PYTHON: &[&str] = &["python", "libpython", "_functools"];

/// Sources: CPython's Modules/_functoolsmodule.c, Lib/re/__init__.py (`_MAXCACHE`; Lib/re.py up to 3.10) and
/// Lib/linecache.py; oneDNN's developer guide, "Primitive Cache"; PyTorch's "CUDA Environment Variables",
/// aten/src/ATen/cuda/CublasHandlePool.cpp and torch/_dynamo/config.py; NVIDIA's cuBLAS documentation,
/// "Results Reproducibility"; SQLite's "PRAGMA cache_size"; SSL_CTX_sess_set_cache_size(3); Hugging Face
/// tokenizers, tokenizers/src/utils/cache.rs.
const KNOWN_CACHES: &[KnownCache] = &[
    KnownCache {
        name: "functools.lru_cache",
        limit: Some("`maxsize` results"),
        setting: "set `maxsize` in the decorator; the function's `cache_clear()` empties it",
        filled_by: Native(PYTHON, "bounded_lru_cache_wrapper"),
    },
    KnownCache {
        name: "functools.cache, or lru_cache(maxsize=None)",
        limit: None,
        setting: "set `maxsize` in the decorator; the function's `cache_clear()` empties it",
        filled_by: Native(PYTHON, "infinite_lru_cache_wrapper"),
    },
    KnownCache {
        name: "re's pattern cache",
        limit: Some("512 patterns"),
        setting: "`re._MAXCACHE` is its limit; `re.purge()` empties it",
        filled_by: Python("stdlib/re/__init__.py", "_compile"),
    },
    KnownCache {
        name: "re's pattern cache",
        limit: Some("512 patterns"),
        setting: "`re._MAXCACHE` is its limit; `re.purge()` empties it",
        filled_by: Python("stdlib/re.py", "_compile"),
    },
    KnownCache {
        name: "linecache",
        limit: Some("one copy of each source file"),
        setting: "`linecache.clearcache()` empties it",
        filled_by: Python("stdlib/linecache.py", "updatecache"),
    },
    KnownCache {
        name: "oneDNN's primitive cache",
        limit: Some("1,024 primitives"),
        setting: "set ONEDNN_PRIMITIVE_CACHE_CAPACITY",
        filled_by: Native(&["libtorch_cpu", "libdnnl", "libmkldnn"], "primitive_cache"),
    },
    KnownCache {
        name: "PyTorch's cache of cuDNN execution plans",
        limit: Some("10,000 plans"),
        setting: "set TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT",
        filled_by: Native(&["libtorch_cuda", "libtorch_hip"], "BenchmarkCache"),
    },
    KnownCache {
        name: "PyTorch's cuBLAS workspaces",
        limit: Some("one workspace for each handle and stream"),
        setting: "set CUBLAS_WORKSPACE_CONFIG",
        filled_by: Native(&["libtorch_cuda"], "getCUDABlasWorkspace"),
    },
    KnownCache {
        name: "PyTorch's cuBLAS workspaces",
        limit: Some("one workspace for each handle and stream"),
        setting: "set CUBLAS_WORKSPACE_CONFIG",
        filled_by: Native(&["libtorch_cuda"], "getCurrentCUDABlasHandle"),
    },
    KnownCache {
        name: "torch.compile's compiled code",
        limit: Some("8 versions of each function"),
        setting: "set `torch._dynamo.config.recompile_limit` (`cache_size_limit` before 2.6)",
        filled_by: Python("site-packages/torch/_dynamo/convert_frame.py", "_compile"),
    },
    KnownCache {
        name: "SQLite's page cache",
        limit: Some("2,000 KiB for each database"),
        setting: "set it with `PRAGMA cache_size`",
        filled_by: Native(&["libsqlite3", "_sqlite3"], "pcache1"),
    },
    KnownCache {
        name: "OpenSSL's session cache",
        limit: Some("20,480 sessions"),
        setting: "set its limit with `SSL_CTX_sess_set_cache_size()`",
        filled_by: Native(&["libssl"], "SSL_CTX_add_session"),
    },
    KnownCache {
        name: "the tokenizer's word cache",
        limit: Some("10,000 words"),
        setting: "call `resize_cache()` of its model",
        filled_by: Native(&["tokenizers"], "tokenizers::utils::cache::Cache"),
    },
];

/// Most frames of the program between the allocation and the cache's function: deeper allocations are kept
/// for other reasons.
const OWN_CALLS: usize = 3;

/// The cache that a stack (leaf first) fills. If it is called for another one, that one: the results are kept there.
pub(crate) fn filled<'a>(
    frames: impl IntoIterator<Item = &'a Frame>,
) -> Option<&'static KnownCache> {
    let mut own = 0;
    frames
        .into_iter()
        .take_while(|frame| {
            own += usize::from(frame.is_python() && frame.file.is_some() && !frame.is_installed());
            own <= OWN_CALLS
        })
        .filter_map(|frame| KNOWN_CACHES.iter().find(|cache| cache.is_filled_by(frame)))
        .last()
}

impl KnownCache {
    fn is_filled_by(&self, frame: &Frame) -> bool {
        let Some(function) = frame.function.as_deref() else {
            return false;
        };
        match self.filled_by {
            Native(files, name) => {
                let of_file = |module: &str| files.iter().any(|file| module.starts_with(file));
                !frame.is_python()
                    && function.contains(name)
                    && plain(function).contains(name)
                    && frame.module_name().is_some_and(of_file)
            }
            Python(place, name) => {
                frame.is_python()
                    && function == name
                    && frame.file.as_deref().and_then(installed).as_deref() == Some(place)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::fixture::{native, python};

    fn name(frames: &[&Frame]) -> Option<&'static str> {
        filled(frames.iter().copied()).map(|cache| cache.name)
    }

    #[test]
    fn a_cache_is_known_by_the_function_that_fills_it() {
        let main = python("main", "/srv/main.py", 1);
        let load = python("load", "/srv/main.py", 9);
        let cached = native("bounded_lru_cache_wrapper", "/usr/bin/python3");
        assert_eq!(name(&[&load, &cached, &main]), Some("functools.lru_cache"));
        let compile = python("_compile", "/usr/lib/python3.11/re/__init__.py", 294);
        assert_eq!(name(&[&compile, &main]), Some("re's pattern cache"));
        let of_pattern = python("_compile_pattern", "/usr/lib/python3.11/fnmatch.py", 44);
        let for_another = [&compile, &of_pattern, &cached, &main];
        assert_eq!(name(&for_another), Some("functools.lru_cache"));
        let own = python("_compile", "/srv/re/__init__.py", 294);
        assert_eq!(name(&[&own, &main]), None);
        let create = native(
            "dnnl::impl::primitive_cache_iface_t::get_or_create(dnnl::impl::key_t const&)",
            "/lib/libtorch_cpu.so",
        );
        assert_eq!(name(&[&create, &main]), Some("oneDNN's primitive cache"));
        let own = native("BenchmarkCache::add(int)", "/srv/bench");
        assert_eq!(name(&[&own, &main]), None);
    }

    #[test]
    fn deep_calls_below_a_cached_function_are_the_programs_own() {
        let [serve, accept, keep, append] =
            ["serve", "accept", "keep", "append"].map(|name| python(name, "/srv/main.py", 9));
        let cached = native("infinite_lru_cache_wrapper", "/usr/bin/python3");
        assert_eq!(name(&[&append, &keep, &accept, &serve, &cached]), None);
        assert!(name(&[&append, &keep, &serve, &cached]).is_some());
    }
}
