//! Finding the interpreter of a process, and whether its structures are as known.

use super::{
    super::memory::Memory,
    Python, dict,
    layout::{Layout, OB_SIZE, OB_TYPE, flag, tp},
    text,
    types::Types,
    words::is_pointer,
};
use crate::{
    file::FileBytes,
    process::{
        elf::Elf,
        files::ModuleFile,
        maps::{Mapping, executable_files},
    },
    python::{self, Candidate},
};
use memtrace_common::python::Interpreter;
use std::path::Path;

/// Why the objects of an interpreter cannot be read.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum NotRecognised {
    #[error("PyPy objects cannot be searched, only CPython objects")]
    PyPy,
    #[error("{0}")]
    Unsupported(#[from] python::Unsupported),
    #[error("{0}")]
    Interpreter(String),
    #[error("the memory layout of this Python 3.{minor} is not that of any release: {what}")]
    Layout { minor: u32, what: &'static str },
}

impl Python {
    /// Looks for the interpreter of a process; `None`: it runs none.
    pub(in super::super) fn open(
        pid: u32,
        mappings: &[Mapping],
        memory: &dyn Memory,
    ) -> Result<Option<Python>, NotRecognised> {
        for mapping in executable_files(mappings) {
            if mapping.path.as_deref().is_some_and(is_pypy) {
                return Err(NotRecognised::PyPy);
            }
            let found = find(pid, mapping)?;
            let Some((candidate, bias)) = found else {
                continue;
            };
            return Python::at(&candidate, bias, memory).map(Some);
        }
        Ok(None)
    }

    fn at(candidate: &Candidate, bias: u64, memory: &dyn Memory) -> Result<Python, NotRecognised> {
        let at = python::interpreter(candidate, 0, bias)
            .map_err(|error| NotRecognised::Interpreter(error.to_string()))?;
        Python::of(at, memory)
    }

    /// That of a known interpreter.
    pub(in super::super) fn of(
        at: Interpreter,
        memory: &dyn Memory,
    ) -> Result<Python, NotRecognised> {
        let wrong = |what| NotRecognised::Layout {
            minor: at.minor,
            what,
        };
        let layout =
            Layout::of(&at, memory).ok_or_else(|| wrong("its description of itself is damaged"))?;
        let interpreter = memory
            .word(at.runtime + u64::from(at.runtime_interpreters))
            .filter(|&it| is_pointer(it))
            .ok_or_else(|| wrong("there is no interpreter yet"))?;
        let modules = memory
            .word(interpreter + layout.modules)
            .filter(|&it| is_pointer(it))
            .ok_or_else(|| wrong("there are no modules"))?;
        let class_of = |object: u64| memory.word(object + OB_TYPE).filter(|&it| is_pointer(it));
        let meta = class_of(modules)
            .and_then(class_of)
            .filter(|&meta| class_of(meta) == Some(meta))
            .ok_or_else(|| wrong("the type of `type` is another one"))?;
        let python = Python {
            types: Types::new(layout.clone(), meta),
            at,
            layout,
        };
        python.validate(memory, modules, meta).map_err(wrong)?;
        Ok(python)
    }

    /// Checks the offsets on well-known objects.
    fn validate(&self, memory: &dyn Memory, modules: u64, meta: u64) -> Result<(), &'static str> {
        let layout = &self.layout;
        let is_a = |object: u64, name: &str| {
            let ty = self.types.of(memory, object);
            ty.is_some_and(|ty| &*ty.tp_name == name)
        };
        let dict_of = |object: u64| memory.word(object + 16).filter(|&dict| is_a(dict, "dict"));
        let require = |is_right, what| if is_right { Ok(()) } else { Err(what) };

        require(is_a(meta, "type"), "`type` has another name")?;
        require(is_a(modules, "dict"), "`sys.modules` is not a dict")?;
        let module = |name| {
            let module = dict::get(layout, memory, modules, name)?;
            dict_of(module).filter(|_| is_a(module, "module"))
        };
        let builtins = module("builtins").ok_or("there is no module `builtins`")?;
        let int = dict::get(layout, memory, builtins, "int").ok_or("there is no `int`")?;
        let int = self.types.get(memory, int).ok_or("`int` is not a type")?;
        require(
            &*int.tp_name == "int" && int.flags & flag::LONG != 0,
            "`int` is another type",
        )?;
        // Static types have their dicts elsewhere since 3.12.
        if layout.minor < 12 {
            let dict = memory.word(meta + tp::DICT).unwrap_or(0);
            let has_base = dict::get(layout, memory, dict, "__base__").is_some();
            require(has_base, "`type` has no `__base__`")?;
        }
        let sys = module("sys").ok_or("there is no module `sys`")?;
        let names = dict::get(layout, memory, sys, "builtin_module_names")
            .filter(|&names| is_a(names, "tuple") && memory.word(names + OB_SIZE) != Some(0))
            .and_then(|names| memory.word(names + layout.tuple_items));
        require(
            names.is_some_and(|name| is_a(name, "str")),
            "items of a tuple are elsewhere",
        )?;
        self.validate_function(memory, modules)
    }

    /// The module that imports is written in Python, and always there.
    fn validate_function(&self, memory: &dyn Memory, modules: u64) -> Result<(), &'static str> {
        let layout = &self.layout;
        let is_a = |object: u64, name: &str| {
            let ty = self.types.of(memory, object);
            ty.is_some_and(|ty| &*ty.tp_name == name)
        };
        let find = || {
            let module = dict::get(layout, memory, modules, "_frozen_importlib")?;
            let names = memory.word(module + 16)?;
            let function = dict::get(layout, memory, names, "_call_with_frames_removed")?;
            let lock = dict::get(layout, memory, names, "_ModuleLock")?;
            Some((function, names, lock))
        };
        let (function, names, class) = find().ok_or("there is no `_frozen_importlib`")?;
        let code = memory.word(function + layout.function.code);
        let globals = memory.word(function + layout.function.globals);
        if !code.is_some_and(|code| is_a(code, "code")) || globals != Some(names) {
            return Err("fields of a function are elsewhere");
        }
        let name = memory.word(class + layout.qualified_name()).unwrap_or(0);
        if !text::is(layout, memory, name, "_ModuleLock") {
            return Err("names of a class are elsewhere");
        }
        Ok(())
    }
}

fn is_pypy(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("libpypy") || name.starts_with("pypy"))
}

/// The interpreter in a mapped file, and the number to add to its addresses.
fn find(pid: u32, mapping: &Mapping) -> Result<Option<(Candidate, u64)>, NotRecognised> {
    // A file that is gone or is not an ELF file has no readable interpreter.
    let Ok(file) = ModuleFile::open(pid, mapping) else {
        return Ok(None);
    };
    let bytes = FileBytes::new(&file.file);
    let Ok(elf) = Elf::parse(&bytes) else {
        return Ok(None);
    };
    let Some(candidate) = python::find(&elf, &file.path)? else {
        return Ok(None);
    };
    let end = mapping.file_offset + mapping.len();
    let code = elf.segments().iter().find(|segment| {
        let offset = segment.file_offset;
        segment.execute && offset < end && offset + segment.file_size > mapping.file_offset
    });
    Ok(code.map(|segment| {
        let start = segment
            .virt
            .wrapping_add(mapping.file_offset)
            .wrapping_sub(segment.file_offset);
        (candidate, mapping.start.wrapping_sub(start))
    }))
}
