//! References as Python would write them.

use super::{
    super::{
        memory::Memory,
        reference::{Label, Name},
    },
    Python, Root, literal, text,
};
use crate::{python::CodeObject, recording::PERHAPS_IN_USE};

/// Part of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Shown {
    pub(in super::super) text: String,
    /// Whether Python can evaluate it, behind an expression for the holder.
    pub(in super::super) is_expression: bool,
}

impl Shown {
    fn expression(text: String) -> Shown {
        Shown {
            text,
            is_expression: true,
        }
    }

    fn words(text: impl Into<String>) -> Shown {
        Shown {
            text: text.into(),
            is_expression: false,
        }
    }
}

impl Python {
    /// The labels of a path, one after the other. `is_redacted`: without names and keys, which the program chose.
    pub(in super::super) fn show(
        &self,
        memory: &dyn Memory,
        labels: &[Label],
        is_redacted: bool,
    ) -> Shown {
        let mut shown = Shown::expression(String::new());
        let mut rest = labels;
        loop {
            let (part, taken) = match rest {
                [] => return shown,
                // Python looks there by itself, and returns the function that a `staticmethod` wraps.
                [
                    Label::Namespace,
                    Label::Value(_),
                    Label::Attribute(name),
                    ..,
                ] if self.name(memory, *name).as_deref() == Some("__func__") => {
                    (self.label(memory, Label::Namespace, is_redacted), 1)
                }
                [Label::Namespace, Label::Value(key), ..] => {
                    (self.namespace_entry(memory, *key, is_redacted), 2)
                }
                [label, ..] => (self.label(memory, *label, is_redacted), 1),
            };
            shown.text += &part.text;
            shown.is_expression &= part.is_expression;
            rest = &rest[taken..];
        }
    }

    fn namespace_entry(&self, memory: &dyn Memory, key: u64, is_redacted: bool) -> Shown {
        if is_redacted {
            return Shown::words(ATTRIBUTE);
        }
        let (key, is_literal) = literal::key(&self.layout, memory, &self.types, key);
        let name = key
            .strip_prefix('\'')
            .and_then(|name| name.strip_suffix('\''));
        match name.filter(|name| text::is_identifier(name)) {
            Some(name) => Shown::expression(format!(".{name}")),
            None => Shown {
                text: format!(".__dict__[{key}]"),
                is_expression: is_literal,
            },
        }
    }

    fn label(&self, memory: &dyn Memory, label: Label, is_redacted: bool) -> Shown {
        let name = |name: Name| self.name(memory, name);
        match label {
            Label::Attribute(Name::Known(name)) => Shown::expression(format!(".{name}")),
            Label::Attribute(_) if is_redacted => Shown::words(ATTRIBUTE),
            Label::Attribute(Name::Object(key)) => self.namespace_entry(memory, key, false),
            Label::Attribute(it) => match name(it) {
                Some(name) => Shown {
                    is_expression: text::is_identifier(&name),
                    text: format!(".{name}"),
                },
                None => Shown::words(ATTRIBUTE),
            },
            Label::Item(index) => Shown::expression(format!("[{index}]")),
            Label::Value(key) if is_redacted => {
                let name = self.types.name(memory, key);
                Shown::words(format!("[{}]", name.as_deref().unwrap_or("?")))
            }
            Label::Value(key) => {
                let (key, is_expression) = literal::key(&self.layout, memory, &self.types, key);
                Shown {
                    text: format!("[{key}]"),
                    is_expression,
                }
            }
            Label::Key => Shown::words(" (a key)"),
            Label::Element => Shown::words(" (an element)"),
            Label::Closure(index, _) => {
                Shown::expression(format!(".__closure__[{index}].cell_contents"))
            }
            Label::Local(_) if is_redacted => Shown::words(": local variable"),
            Label::Local(it) => match name(it) {
                Some(name) => Shown::words(format!(": {name}")),
                None => Shown::words(": local variable"),
            },
            Label::Operand => Shown::words(": value in use"),
            Label::PerhapsOperand => Shown::words(PERHAPS_IN_USE),
            Label::Namespace => Shown::expression(".__dict__".to_owned()),
            Label::Internal(what) => Shown::words(format!(" ({what})")),
            Label::Buffer => Shown::words(" (its memory)"),
            Label::Word(offset) | Label::Structure(offset) => Shown::words(format!(" (+{offset})")),
        }
    }

    /// Where a path begins. Modules are written as their names, which are expressions once they are imported.
    pub(in super::super) fn show_root(
        &self,
        memory: &dyn Memory,
        root: Root,
        is_redacted: bool,
    ) -> Shown {
        match root {
            Root::Module(_) | Root::Frame { .. } if is_redacted => Shown::words(""),
            Root::Module(name) => match self.name(memory, name) {
                Some(name) => Shown {
                    is_expression: name.split('.').all(text::is_identifier),
                    text: name,
                },
                None => Shown::words(""),
            },
            Root::Frame { code, instruction } => {
                Shown::words(self.show_frame(memory, code, instruction))
            }
            Root::Thread(id) => Shown::words(format!("thread {id:#x}")),
            Root::Interpreter => Shown::words("interpreter"),
            Root::AtExit => Shown::words("atexit"),
        }
    }

    fn name(&self, memory: &dyn Memory, name: Name) -> Option<String> {
        match name {
            Name::Object(object) => text::name(&self.layout, memory, object),
            Name::Text(address) => text::c_string(memory, address),
            Name::Known(name) => Some(name.to_owned()),
        }
    }

    /// `run (train.py:48)`; empty if the code object cannot be read.
    fn show_frame(&self, memory: &dyn Memory, code: u64, instruction: u32) -> String {
        let Some(code) = self.code(memory, code) else {
            return String::new();
        };
        let line = code.line(instruction);
        let line = line.map_or(String::new(), |line| format!(":{line}"));
        let file = code.filename.rsplit('/').next().unwrap_or_default();
        format!("{} ({file}{line})", code.name)
    }

    /// The code object at an address.
    pub(in super::super) fn code(&self, memory: &dyn Memory, code: u64) -> Option<CodeObject> {
        /// Longest line table, bytes.
        const MOST: u64 = 1 << 20;
        let at = &self.at;
        let field = |offset: u32| code.checked_add(offset.into());
        let pointer = |offset| memory.word(field(offset)?);
        let string = |offset| text::name(&self.layout, memory, pointer(offset)?);
        let linetable = pointer(at.code_linetable)?;
        let size = memory.word(linetable.checked_add(at.bytes_size.into())?)?;
        let mut lines = vec![0; size.min(MOST) as usize];
        let is_read = memory.read(
            linetable.checked_add(at.bytes_data.into())?,
            lines.as_mut_slice(),
        );
        Some(CodeObject {
            filename: string(at.code_filename)?,
            name: string(at.code_name)?,
            first_line: memory.half(field(at.code_first_line)?)?,
            linetable: lines,
            is_cut: !is_read || size > MOST,
            minor: at.minor,
        })
    }
}

/// An attribute whose name is not shown.
const ATTRIBUTE: &str = ".…";
