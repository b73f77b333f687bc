//! Ranks the differences between the machines by their relation to growth.
//!
//! Ranked, not proven: first come differences about a module on a growing stack, near its leaf;
//! then those that most often explained such growth elsewhere. Facts that merely describe the
//! moment of recording come last.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    SiteDifference,
    facts::{Values, of},
    known::{self, Absence},
    module_name, symbol,
};
use crate::frames::{Frame, FrameKind};

/// Number of sites considered: the growth of later ones is small in comparison.
const SITES: usize = 20;

/// Weight of being about a kind of thing, where being about a site has at most 1.
const KIND_WEIGHT: f64 = 0.1;

/// Weight of a fact that only describes.
const DESCRIPTION: f64 = 0.5;

/// A package on stacks with at least this share of growth ranks above variables.
const ON_STACKS: f64 = 0.1;

/// A fact that is not the same on both sides.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Difference {
    pub field: String,
    /// Values of all processes or baselines, separated by ` | `; `None` if there is none.
    pub baseline: Option<String>,
    pub new: Option<String>,
    /// The reason why a side has no value.
    pub absence: Option<Absence>,
    /// Indices into [`super::Comparison::sites`].
    pub related_sites: Vec<usize>,
}

/// Facts of the last recording that differ from all earlier ones, the most related to `sites` first.
pub(super) fn differences(recordings: &[Values], sites: &[SiteDifference]) -> Vec<Difference> {
    let Some((new, olds)) = recordings.split_last() else {
        return Vec::new();
    };
    let fields = recordings.iter().flat_map(BTreeMap::keys);
    let fields: BTreeSet<&str> = fields.copied().collect();
    let unlike = |field: &&str| olds.iter().all(|old| known::differs(field, old, new));
    let weighed = weighed(sites);
    let whole: f64 = weighed.iter().map(|site| site.weight).sum();

    let programs = recordings.iter().flat_map(|values| of(values, "exe.path"));
    let programs: BTreeSet<String> = programs
        .map(|path| module_name::normalise(path).0.to_ascii_lowercase())
        .collect();
    let programs = Vec::from_iter(programs);
    let mut ranked: Vec<Ranked> = fields
        .into_iter()
        .filter(unlike)
        .map(|field| {
            let values = recordings.iter().flat_map(|values| of(values, field));
            let values = Vec::from_iter(values);
            let about = About::of(field, &programs, &values.join(" "));
            let related = weighed.iter().map(|site| (site, about.relation(site)));
            let related: Vec<_> = related.filter(|(_, relation)| *relation > 0.0).collect();
            let shares = related
                .iter()
                .map(|(site, relation)| site.weight * relation);
            let relation = if whole > 0.0 {
                shares.sum::<f64>() / whole
            } else {
                0.0
            };
            let old: BTreeSet<&str> = olds.iter().flat_map(|old| of(old, field)).collect();
            let mut related_sites: Vec<_> = related.iter().map(|(site, _)| site.index).collect();
            related_sites.sort_unstable();
            let found = of(new, field);
            let absence = match (old.is_empty(), found.is_empty()) {
                (true, false) => Some(known::absence(field, olds)),
                (false, true) => Some(known::absence(field, std::slice::from_ref(new))),
                _ => None,
            };
            let related_weight: f64 = related.iter().map(|(site, _)| site.weight).sum();
            let stands = is_package(field) && related_weight > ON_STACKS * whole;
            let difference = Difference {
                field: field.to_owned(),
                baseline: joined(&old),
                new: joined(&found),
                absence,
                related_sites,
            };
            let relation = match describes(field) {
                true => DESCRIPTION * relation,
                false => relation,
            };
            // Without its value, the meaning of a setting is unknown.
            let score = match values.iter().any(|value| known::is_unread(value)) {
                true if known::is_of_session(field) => -KIND_WEIGHT,
                true => 0.0,
                false => relation + KIND_WEIGHT * kind(field),
            };
            Ranked {
                score,
                stands,
                difference,
            }
        })
        .collect();
    // A variable may affect much code, but differences in the growing code itself come first.
    let standing = ranked.iter().filter(|fact| fact.stands);
    let lowest = standing.map(|fact| fact.score).min_by(f64::total_cmp);
    if let Some(lowest) = lowest {
        for fact in ranked.iter_mut().filter(|fact| fact.is_variable()) {
            fact.score = fact.score.min(lowest);
        }
    }
    ranked.sort_by(|a, b| {
        let order = b.score.total_cmp(&a.score);
        let order = order.then(a.is_variable().cmp(&b.is_variable()));
        order.then_with(|| a.difference.field.cmp(&b.difference.field))
    });
    ranked.into_iter().map(|fact| fact.difference).collect()
}

/// The sites that weigh most, the heaviest first.
fn weighed(sites: &[SiteDifference]) -> Vec<Traits> {
    let mut weights: Vec<f64> = sites.iter().map(weight).filter(|it| *it > 0.0).collect();
    weights.sort_by(|a, b| b.total_cmp(a));
    // Computing traits takes long, so only sites that can be among the first get them.
    let least = weights.get(SITES - 1).or(weights.last());
    let heavy = sites
        .iter()
        .enumerate()
        .filter(|(_, site)| least.is_some_and(|least| weight(site) >= *least));
    let mut weighed: Vec<Traits> = heavy
        .map(|(index, site)| Traits::new(index, site))
        .collect();
    weighed.sort_by(|a, b| {
        let order = b.weight.total_cmp(&a.weight);
        order.then_with(|| a.modules.cmp(&b.modules))
    });
    weighed.truncate(SITES);
    weighed
}

/// Bytes per unit, without sign: with the sides exchanged, the same facts come first.
fn weight(site: &SiteDifference) -> f64 {
    site.delta.rate.abs()
}

struct Ranked {
    score: f64,
    /// A package or library on the stacks that grow.
    stands: bool,
    difference: Difference,
}

impl Ranked {
    fn is_variable(&self) -> bool {
        self.difference.field.starts_with("env.")
    }
}

fn joined(values: &BTreeSet<&str>) -> Option<String> {
    let values: Vec<&str> = values.iter().copied().collect();
    (!values.is_empty()).then(|| values.join(" | "))
}

/// Traits of a site that facts can be about.
struct Traits {
    index: usize,
    /// See [`weight`].
    weight: f64,
    /// Modules on both sides' stacks, in an order that does not depend on the sides' order.
    /// Normalised, the leaf's first, each once; Python packages too.
    modules: [Vec<String>; 2],
    has_isa: bool,
}

impl Traits {
    fn new(index: usize, site: &SiteDifference) -> Traits {
        let mut traits = Traits {
            index,
            weight: weight(site),
            modules: Default::default(),
            has_isa: false,
        };
        let sides = [&site.baseline_stack, &site.new_stack];
        for (stack, known) in sides.into_iter().zip(&mut traits.modules) {
            for frame in stack.iter().flat_map(|stack| stack.shown()) {
                traits.has_isa = traits.has_isa || !isa(frame).is_empty();
                for module in modules(frame) {
                    if !known.contains(&module) {
                        known.push(module);
                    }
                }
            }
        }
        traits.modules.sort();
        traits
    }
}

/// Instruction set extensions in the names of a frame's function and module.
pub(crate) fn isa(frame: &Frame) -> Vec<String> {
    if frame.kind == FrameKind::Python {
        return Vec::new();
    }
    let function = frame.function.as_deref().unwrap_or_default();
    let mut found = symbol::normalise(function, true).1;
    found.extend(module_name::normalise(frame.module.as_deref().unwrap_or_default()).1);
    found.sort();
    found.dedup();
    found
}

/// The file that a frame is in and the package that the file belongs to, lower case.
fn modules(frame: &Frame) -> Vec<String> {
    let path = match frame.kind {
        FrameKind::Native => frame.module.as_deref(),
        FrameKind::Python => frame.file.as_deref(),
    };
    let path = path.unwrap_or_default();
    let file = match frame.kind {
        FrameKind::Native => module_name::normalise(path).0,
        FrameKind::Python => module_name::PYTHON.into(),
    };
    let packages = ["/site-packages/", "/dist-packages/"];
    let inside = packages.iter().find_map(|folder| path.split_once(folder));
    let package = inside.and_then(|(_, rest)| rest.split(['/', '.']).next());
    [Some(file), package.map(str::to_owned)]
        .into_iter()
        .flatten()
        .filter(|name| !name.is_empty())
        .map(|name| name.to_ascii_lowercase())
        .collect()
}

/// Python distributions whose packages have different names (PEP 503 and PEP 328).
const IMPORTED_AS: &[(&str, &str)] = &[
    ("attrs", "attr"),
    ("beautifulsoup4", "bs4"),
    ("grpcio", "grpc"),
    ("mysqlclient", "mysqldb"),
    ("opencv-contrib-python", "cv2"),
    ("opencv-python", "cv2"),
    ("opencv-python-headless", "cv2"),
    ("pillow", "pil"),
    ("protobuf", "google"),
    ("psycopg-binary", "psycopg_binary"),
    ("psycopg2-binary", "psycopg2"),
    ("pycryptodome", "crypto"),
    ("pymupdf", "fitz"),
    ("python-dateutil", "dateutil"),
    ("pyyaml", "yaml"),
    ("pyzmq", "zmq"),
    ("scikit-image", "skimage"),
    ("scikit-learn", "sklearn"),
];

/// Settings and the modules that read them, by beginnings of both, lower case.
const READ_BY: &[(&str, &[&str])] = &[
    ("omp_", THREAD_POOLS),
    ("gomp_", &["libgomp"]),
    ("kmp_", &["libiomp", "libomp"]),
    ("mkl_", &["libmkl"]),
    ("openblas_", &["libopenblas", "libscipy_openblas"]),
    ("goto_", &["libopenblas", "libscipy_openblas"]),
    ("dnnl_", &["libdnnl", "libtorch_cpu"]),
    ("onednn_", &["libdnnl", "libtorch_cpu"]),
    ("lru_cache_capacity", &["libtorch", "libdnnl"]),
    ("aten_", &["libtorch", "libc10"]),
    ("torch", &["libtorch", "libc10", "torch"]),
    ("pytorch", &["libtorch", "libc10", "torch"]),
    ("cuda", &["libcuda", "libtorch_cuda", "libc10_cuda"]),
    ("cudnn", &["libcudnn"]),
    ("nccl", &["libnccl"]),
    ("ucx_", &["libucp", "libucs", "libuct"]),
    ("numpy_", &["numpy", "_multiarray_umath"]),
    ("python", &["python"]),
];

/// Libraries that make as many threads as there are processors.
const THREAD_POOLS: &[&str] = &[
    "libgomp",
    "libiomp",
    "libomp",
    "libmkl",
    "libopenblas",
    "libscipy_openblas",
    "libtbb",
    "libtorch",
    "libdnnl",
    "libblis",
];

/// Subject of a fact.
enum About {
    /// Modules and packages whose names begin with one of these, or with `true` equal one.
    Modules(Vec<String>, bool),
    Processors,
    InstructionSet,
    Other,
}

impl About {
    /// Subject of `field`, if the traced programs are `programs` and `values` are all values of the
    /// field.
    fn of(field: &str, programs: &[String], values: &str) -> About {
        let lower = field.to_ascii_lowercase();
        let (family, rest) = lower.split_once('.').unwrap_or((&lower, ""));
        let exactly = |name: &str| About::Modules(vec![name.to_owned()], true);
        match (family, rest) {
            ("exe", _) => About::Modules(programs.to_vec(), true),
            ("lib", "openmp_runtimes") => About::Modules(
                ["libgomp", "libiomp5", "libomp"].map(str::to_owned).into(),
                true,
            ),
            ("lib", _) => {
                let name = match rest.strip_prefix("duplicates.") {
                    Some(name) => name,
                    // `lib.libx.so.1.build_id`: the last word names the property.
                    None => rest.rsplit_once('.').map_or(rest, |(name, _)| name),
                };
                exactly(&module_name::normalise(name).0.to_ascii_lowercase())
            }
            ("python" | "conda", _) if rest.starts_with("package.") => {
                let name = &rest["package.".len()..];
                let imported = IMPORTED_AS.iter().find(|(known, _)| *known == name);
                match imported {
                    Some((_, module)) => exactly(module),
                    // Package names have dashes (PEP 503), module names have underscores.
                    None => exactly(&name.replace('-', "_")),
                }
            }
            ("python", _) => exactly(module_name::PYTHON),
            ("glibc", _) => exactly("libc"),
            ("env", "glibc_tunables") if values.contains("hwcaps") => About::InstructionSet,
            ("env", _) => match READ_BY.iter().find(|(name, _)| rest.starts_with(name)) {
                Some((_, modules)) => About::Modules(
                    modules.iter().map(|name| (*name).to_owned()).collect(),
                    false,
                ),
                None => About::Other,
            },
            ("affinity", "count" | "cpus")
            | ("cgroup", "cpu.max" | "cpuset")
            | ("cpu", "count" | "online" | "isolated" | "smt") => About::Processors,
            ("isa", _) | ("cpu", "flags" | "isa_level" | "model" | "signature") => {
                About::InstructionSet
            }
            _ => About::Other,
        }
    }

    /// Its closeness to a site: 1 at the leaf, less further out, 0 not at all.
    fn relation(&self, site: &Traits) -> f64 {
        let nearest = |wanted: &dyn Fn(&str) -> bool| {
            let place = |side: &Vec<String>| side.iter().position(|module| wanted(module));
            let place = site.modules.iter().filter_map(place).min();
            place.map_or(0.0, |place| 1.0 / (1.0 + place as f64))
        };
        match self {
            About::Modules(names, true) => nearest(&|module| names.iter().any(|n| n == module)),
            About::Modules(names, false) => {
                nearest(&|module| names.iter().any(|name| module.starts_with(&**name)))
            }
            About::Processors => {
                nearest(&|module| THREAD_POOLS.iter().any(|name| module.starts_with(name)))
            }
            About::InstructionSet if site.has_isa => 1.0,
            About::InstructionSet | About::Other => 0.0,
        }
    }
}

/// Whether a field identifies a package or library. The executable does not count: it is on all stacks.
fn is_package(field: &str) -> bool {
    let (family, rest) = field.split_once('.').unwrap_or((field, ""));
    match family {
        "lib" => !describes(field),
        "python" | "conda" => rest.starts_with("package."),
        _ => false,
    }
}

/// Whether a field only describes something that another one, the build id, identifies.
fn describes(field: &str) -> bool {
    let (family, rest) = field.split_once('.').unwrap_or((field, ""));
    ["exe", "lib"].contains(&family) && (rest.ends_with("path") || rest.ends_with("size"))
}

/// The rank of a fact's kind: 0 for those that most often explain growth on one machine only. What only describes, and
/// variables without their value, come last.
pub(crate) fn rank(field: &str, is_unread: bool) -> u32 {
    let last = u32::from(describes(field)) + 2 * u32::from(is_unread);
    100 * last + (10.0 * (1.0 - kind(field))) as u32
}

/// Kinds of facts, those first that most often explain growth on one machine only. 0 to 1.
fn kind(field: &str) -> f64 {
    const KINDS: [&[&str]; 10] = [
        &["lib", "library", "package", "python", "conda"],
        &["env", "command"],
        &["affinity", "cpuset"],
        &["glibc", "libc", "malloc", "allocator", "hwcaps", "isa"],
        &["thp", "kernel"],
        &["gpu", "cuda", "nvidia"],
        &["cpu"],
        &["container", "cgroup", "os", "namespace"],
        &[
            "limit",
            "dev_shm",
            "filesystem",
            "numa",
            "vm",
            "swap",
            "memory",
        ],
        &["machine", "process"],
    ];
    let lower = field.to_ascii_lowercase();
    let family = lower.split('.').next().unwrap_or_default();
    let place = KINDS.iter().position(|names| names.contains(&family));
    let place = place.unwrap_or(KINDS.len()) as f64;
    (KINDS.len() as f64 - place) / KINDS.len() as f64
}
