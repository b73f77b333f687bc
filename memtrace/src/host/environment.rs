//! A process's environment at its exec: the names of all variables, values by allow-list.

use super::{Facts, Redactor, source::FILE_AT_MOST};
use crate::{
    frames::caching,
    recording::variables::{ALL, IN_PART, NAMES, UNREADABLE, WITHHELD, hashed},
};

/// Most variables recorded per process.
const MOST: usize = 2_000;

/// Variables recorded with their value, besides those of caching allocators; a trailing `*` matches any
/// suffix. No prefix that another program uses for secrets: `TF_*` would be Terraform's too.
const ALLOWED: &[&str] = &[
    "OMP_*",
    "KMP_*",
    "GOMP_*",
    "MKL_*",
    "OPENBLAS_*",
    "GOTO_*",
    "BLIS_*",
    "VECLIB_*",
    "NUMEXPR_*",
    "DNNL_*",
    "ONEDNN_*",
    "LRU_CACHE_CAPACITY",
    "ATEN_*",
    "TORCH*",
    "TRITON_*",
    "TF_ENABLE_ONEDNN_OPTS",
    "TF_FORCE_GPU_ALLOW_GROWTH",
    "TF_GPU_*",
    "TF_NUM_*",
    "TF_XLA_FLAGS",
    "XLA_*",
    "JAX_*",
    "ORT_*",
    "CUDA_*",
    "CUDNN_*",
    "CUBLAS_*",
    "NVIDIA_*",
    "NCCL_*",
    "UCX_*",
    "HIP_*",
    "HSA_*",
    "ROCR_*",
    "MIOPEN_*",
    "MALLOC_*",
    "MALLOC_CONF",
    "_RJEM_MALLOC_CONF",
    "TCMALLOC_*",
    "MIMALLOC_*",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "LD_BIND_NOW",
    "PYTHONMALLOC",
    "PYTHONMALLOCSTATS",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONTRACEMALLOC",
    "PYTHONOPTIMIZE",
    "PYTHONNOUSERSITE",
    "PYTHON_GIL",
    "PYTHONHASHSEED",
    "NUMPY_MADVISE_HUGEPAGE",
    "NPY_DISABLE_CPU_FEATURES",
    "THP_MEM_ALLOC_ENABLE",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "ARROW_DEFAULT_MEMORY_POOL",
    "GOGC",
    "GOMEMLIMIT",
    "GODEBUG",
    "GOMAXPROCS",
    "RAYON_NUM_THREADS",
    "TOKIO_WORKER_THREADS",
    "UV_THREADPOOL_SIZE",
    "NODE_OPTIONS",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
];

/// Adds `env.NAME` for each variable of `/proc/PID/environ`, and whether these are all.
pub(super) fn facts(environ: Option<&[u8]>, facts: &mut Facts) {
    let Some(environ) = environ else {
        return facts.add(NAMES, Some(UNREADABLE));
    };
    // A longer environment is cut.
    let is_whole = (environ.len() as u64) < FILE_AT_MOST;
    let mut names = if is_whole { ALL } else { IN_PART };
    for (count, variable) in entries(environ).enumerate() {
        match variable {
            Some((name, value)) if count < MOST => {
                let value = value_of(facts.redactor, name, &value);
                facts.add(&format!("env.{name}"), Some(value));
            }
            _ => names = IN_PART,
        }
    }
    facts.add(NAMES, Some(names));
}

fn value_of(redactor: &Redactor, name: &str, value: &str) -> String {
    // A program may treat an empty variable differently from a missing one.
    if value.is_empty() {
        "(empty)".to_owned()
    } else if redactor.withholds(name) {
        WITHHELD.to_owned()
    } else if is_allowed(name) {
        redactor.value(name, value)
    } else {
        hashed(name, value)
    }
}

/// Variables as `NAME=VALUE`, each ended by a zero byte. `None` for anything else: a program may write its
/// title over its environment.
fn entries(environ: &[u8]) -> impl Iterator<Item = Option<(&str, String)>> {
    let whole = environ.strip_suffix(b"\0");
    let entries = whole.unwrap_or(environ).split(|byte| *byte == 0);
    let count = if environ.is_empty() { 0 } else { usize::MAX };
    entries.take(count).map(|variable| {
        let at = variable.iter().position(|byte| *byte == b'=')?;
        let (name, value) = variable.split_at(at);
        let value = String::from_utf8_lossy(value.get(1..)?).into_owned();
        let name = std::str::from_utf8(name).ok()?;
        (!name.is_empty()).then_some((name, value))
    })
}

/// The variables among [`entries`].
fn variables(environ: &[u8]) -> impl Iterator<Item = (&str, String)> {
    entries(environ).flatten()
}

/// Value of one variable.
pub(super) fn variable(environ: &[u8], name: &str) -> Option<String> {
    variables(environ).find_map(|(found, value)| (found == name).then_some(value))
}

fn is_allowed(name: &str) -> bool {
    let mut all = ALLOWED.iter().copied().chain(caching::settings());
    all.any(|allowed| match allowed.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == allowed,
    })
}

/// CPU features that are disabled in glibc: `glibc.cpu.hwcaps=-AVX2,-AVX512F` of GLIBC_TUNABLES.
/// Lower-case, without a suffix of old versions.
pub(super) fn disabled_features(environ: &[u8]) -> Vec<String> {
    let tunables = variable(environ, "GLIBC_TUNABLES").unwrap_or_default();
    tunables
        .split(':')
        .filter_map(|tunable| {
            let (name, value) = tunable.split_once('=')?;
            matches!(name, "glibc.cpu.hwcaps" | "glibc.tune.hwcaps").then_some(value)
        })
        .flat_map(|value| value.split(','))
        .filter_map(|feature| Some(feature.strip_prefix('-')?.to_ascii_lowercase()))
        .map(|feature| match feature.strip_suffix("_usable") {
            Some(name) => name.to_owned(),
            None => feature,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::variables::is_hashed;

    #[test]
    fn only_allowed_values_are_recorded_and_no_secrets() {
        let environ = b"OMP_NUM_THREADS=4\0HOME=/home/alice\0AWS_SECRET_ACCESS_KEY=abc\0\
            MALLOC_ARENA_MAX=\0LD_PRELOAD=/x/libjemalloc.so.2\0TORCH_HUB_TOKEN=swordfish\0\
            NCCL_X=https://u:pass@h/\0TF_VAR_db=quokka\0\xff=1\0garbage\0=x\0OMP_A=a=b\0\
            NODE_OPTIONS=--token=hunter2\0CUDA_API=hf_abcdefghijklmnop\0";
        let redactor = Redactor::default();
        let mut list = Facts::new(None, &redactor);
        facts(Some(environ), &mut list);
        assert_eq!(list.value("env.OMP_NUM_THREADS"), Some("4"));
        assert_eq!(list.value("env.MALLOC_ARENA_MAX"), Some("(empty)"));
        assert_eq!(list.value("env.LD_PRELOAD"), Some("/x/libjemalloc.so.2"));
        assert_eq!(list.value("env.OMP_A"), Some("a=b"));
        let home = hashed("HOME", "/home/alice");
        assert_eq!(list.value("env.HOME"), Some(home.as_str()));
        for secret in ["AWS_SECRET_ACCESS_KEY", "TORCH_HUB_TOKEN"] {
            assert_eq!(list.value(&format!("env.{secret}")), Some(WITHHELD));
        }
        let options = list.value("env.NODE_OPTIONS").unwrap_or_default();
        let hash = options.strip_prefix("--token=");
        assert!(hash.is_some_and(is_hashed), "{options}");
        assert!(list.value("env.CUDA_API").is_some_and(is_hashed));
        let text = format!("{:?}", list.into_vec());
        for secret in ["alice", "abc", "swordfish", "pass", "quokka", "hunter2"] {
            assert!(!text.contains(secret), "{text}");
        }
    }

    #[test]
    fn whether_all_names_are_known_is_recorded() {
        let many = "A=1\0".repeat(MOST + 1);
        for (environ, expected) in [
            (Some("A=1\0B=\0"), ALL),
            (Some(""), ALL),
            (Some("A=1\0postgres: writer\0\0\0"), IN_PART),
            (Some("\0\0\0"), IN_PART),
            (Some("=1\0"), IN_PART),
            (Some(many.as_str()), IN_PART),
            (None, UNREADABLE),
        ] {
            let redactor = Redactor::default();
            let mut list = Facts::new(None, &redactor);
            facts(environ.map(str::as_bytes), &mut list);
            assert_eq!(list.value(NAMES), Some(expected), "{environ:?}");
        }
    }

    #[test]
    fn a_redacted_recording_has_only_the_names_of_session_variables() {
        let redactor = Redactor::everything();
        let mut list = Facts::new(None, &redactor);
        facts(Some(b"DB_PASSWORD=x\0HOME=/home/y\0SHELL=z\0"), &mut list);
        assert_eq!(list.value("env.DB_PASSWORD"), Some("(set)"));
        assert_eq!(list.value("env.HOME"), Some("(set)"));
        let shell = hashed("SHELL", "z");
        assert_eq!(list.value("env.SHELL"), Some(shell.as_str()));
    }

    #[test]
    fn features_that_glibc_must_not_use_are_listed() {
        let environ = b"A=1\0GLIBC_TUNABLES=glibc.malloc.check=3:glibc.cpu.hwcaps=-AVX2_Usable,-AVX512F,ERMS\0";
        assert_eq!(disabled_features(environ), ["avx2", "avx512f"]);
        assert_eq!(disabled_features(b""), [""; 0]);
    }

    #[test]
    fn settings_of_caching_allocators_are_recorded() {
        for name in ["PYTORCH_CUDA_ALLOC_CONF", "POOL_SIZE"] {
            assert!(is_allowed(name), "{name}");
        }
        assert!(!is_allowed("POOL_SIZES"));
    }
}
