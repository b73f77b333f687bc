//! Packages of Python with a known fault, in the version that has it and in one that has not.
//! Each was seen: resident memory rises with the first version and not with the second.

use super::{Case, Packages};

/// Native code has a reference too many: nothing in the program keeps the object.
const SURPLUS: &[&str] = &["leaked reference", "nothing", "no pointer", "native code"];
/// Native code forgot a block.
const LOST: &[&str] = &["nothing", "no pointer"];
const COLLECTOR: &[&str] = &["gc.collect() would free", "ensure that gc.collect() runs"];
const SEEN: &str = "a public report of the package; the fixed version does not grow";

const fn package(
    name: &'static str,
    source: &'static str,
    python: &'static str,
    faulty: &'static str,
    fixed: &'static str,
    keeper: &'static [&'static str],
) -> Case {
    Case {
        packages: Some(Packages {
            python,
            faulty: Some(faulty),
            fixed,
        }),
        keeper,
        never: COLLECTOR,
        truth: SEEN,
        ..Case::new(name, "Python", "package", source)
    }
}

pub(super) const CASES: &[Case] = &[
    package(
        "multidict",
        "packages/multidict_items.py",
        "3.12",
        "multidict==6.3.0",
        "multidict==6.4.0",
        SURPLUS,
    ),
    package(
        "orjson",
        "packages/orjson_default.py",
        "3.11",
        "orjson==3.9.0",
        "orjson==3.9.1",
        SURPLUS,
    ),
    package(
        "pydantic-adapter",
        "packages/pydantic_adapter.py",
        "3.11",
        "pydantic==2.5.2",
        "pydantic==2.5.3",
        &[
            "leaked reference",
            "nothing",
            "no pointer",
            "native code",
            "cycle",
        ],
    ),
    package(
        "pydantic-iterable",
        "packages/pydantic_iterable.py",
        "3.12",
        "pydantic==2.7.0",
        "pydantic==2.8.0",
        SURPLUS,
    ),
    package(
        "hiredis",
        "packages/hiredis_map.py",
        "3.11",
        "hiredis==2.2.3",
        "hiredis==3.3.0",
        SURPLUS,
    ),
    package(
        "ujson-dump",
        "packages/ujson_dump.py",
        "3.12",
        "ujson==5.12.0",
        "ujson==5.12.1",
        SURPLUS,
    ),
    package(
        "ujson-error",
        "packages/ujson_error.py",
        "3.10",
        "ujson==5.3.0",
        "ujson==5.4.0",
        LOST,
    ),
    package(
        "bson-decode-all",
        "packages/bson_decode_all.py",
        "3.10",
        "pymongo==4.1.0",
        "pymongo==4.1.1",
        SURPLUS,
    ),
    package(
        "bson-invalid",
        "packages/bson_invalid.py",
        "3.12",
        "pymongo==4.15.2",
        "pymongo==4.15.3",
        SURPLUS,
    ),
    package(
        "rapidjson",
        "packages/rapidjson_end_array.py",
        "3.10",
        "python-rapidjson==1.5",
        "python-rapidjson==1.6",
        SURPLUS,
    ),
    package(
        "frozendict",
        "packages/frozendict_repr.py",
        "3.10",
        "frozendict==2.3.2",
        "frozendict==2.3.3",
        SURPLUS,
    ),
    package(
        "numpy-fill",
        "packages/numpy_fill.py",
        "3.11",
        "numpy==1.24.0",
        "numpy==1.24.1",
        SURPLUS,
    ),
    package(
        "msgpack",
        "packages/msgpack_iterate.py",
        "3.12",
        "msgpack==1.0.7",
        "msgpack==1.0.8",
        SURPLUS,
    ),
    package(
        "msgspec-reduce",
        "packages/msgspec_reduce.py",
        "3.10",
        "msgspec==0.6.0",
        "msgspec==0.7.0",
        SURPLUS,
    ),
    package(
        "msgspec-decode",
        "packages/msgspec_decode.py",
        "3.11",
        "msgspec==0.13.0",
        "msgspec==0.13.1",
        SURPLUS,
    ),
    package(
        "pendulum",
        "packages/pendulum_parse.py",
        "3.9",
        "pendulum==2.1.2",
        "pendulum==3.0.0",
        SURPLUS,
    ),
    Case {
        functions: &[
            "web_app.py",
            "web_urldispatcher.py",
            "web_request.py",
            "web_protocol.py",
        ],
        keeper: &[
            "lru_cache",
            "cache_clear",
            "_build_middlewares",
            "aiohttp.web_app",
        ],
        ..package(
            "aiohttp",
            "packages/aiohttp_middleware.py",
            "3.12",
            "aiohttp==3.10.10 multidict==6.1.0",
            "aiohttp==3.10.11 multidict==6.1.0",
            &[],
        )
    },
    Case {
        packages: Some(Packages {
            python: "3.12",
            faulty: None,
            fixed: "cachetools==5.5.0",
        }),
        truth: "the program's dict has an entry for each request, by its length",
        ..package(
            "cachetools",
            "packages/prices.py",
            "3.12",
            "",
            "",
            &["__closure__"],
        )
    },
];
