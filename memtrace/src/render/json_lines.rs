//! Layout of JSON: the parts of a report line by line, each element of a list on a line of its own.
//! Figures on lines of their own would make a large report several times as large.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::Formatter;

use super::{Error, until_closed};
use crate::escape::in_json;

/// Objects and lists nested less deeply than this are broken into lines.
const BROKEN: usize = 2;

/// Writes a value laid out so, and the end of the last line.
pub(super) fn print(out: &mut impl Write, value: &impl Serialize) -> Result<(), Error> {
    let mut serializer = serde_json::Serializer::with_formatter(&mut *out, Lines::default());
    let written = value
        .serialize(&mut serializer)
        .map_err(std::io::Error::from)
        .and_then(|()| writeln!(out))
        .and_then(|()| out.flush());
    Ok(until_closed(written)?)
}

/// See the module.
#[derive(Debug, Default)]
struct Lines {
    depth: usize,
    has_elements: bool,
}

impl Lines {
    fn begin<W: Write + ?Sized>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.has_elements = false;
        out.write_all(bracket)
    }

    fn end<W: Write + ?Sized>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        let broken = self.depth <= BROKEN && self.has_elements;
        self.depth -= 1;
        self.has_elements = true;
        if broken {
            self.new_line(out)?;
        }
        out.write_all(bracket)
    }

    fn element<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.has_elements = true;
        if !first {
            out.write_all(b",")?;
        }
        match self.depth <= BROKEN {
            true => self.new_line(out),
            false if first => Ok(()),
            false => out.write_all(b" "),
        }
    }

    fn new_line<W: Write + ?Sized>(&self, out: &mut W) -> io::Result<()> {
        out.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| out.write_all(b"  "))
    }
}

impl Formatter for Lines {
    fn write_string_fragment<W: Write + ?Sized>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        out.write_all(in_json(fragment).as_bytes())
    }

    fn begin_array<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.begin(out, b"[")
    }

    fn end_array<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.end(out, b"]")
    }

    fn begin_array_value<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.element(out, first)
    }

    fn begin_object<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.begin(out, b"{")
    }

    fn end_object<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        self.end(out, b"}")
    }

    fn begin_object_key<W: Write + ?Sized>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.element(out, first)
    }

    fn begin_object_value<W: Write + ?Sized>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Serialize;
    use serde_json::{Value, json};

    #[test]
    fn each_element_of_a_list_is_a_line() {
        let value = json!({
            "empty": [], "a": 1, "list": [{ "x": [1, 2], "y": {} }, [3]], "object": { "z": [4, 5] },
        });
        let mut out = Vec::new();
        let mut serializer = serde_json::Serializer::with_formatter(&mut out, Lines::default());
        value.serialize(&mut serializer).unwrap();
        assert_eq!(
            String::from_utf8(out.clone()).unwrap(),
            "{\n  \"a\": 1,\n  \"empty\": [],\n  \"list\": [\n    {\"x\": [1, 2], \"y\": {}},\n    \
             [3]\n  ],\n  \"object\": {\n    \"z\": [4, 5]\n  }\n}"
        );
        let read: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(read, value);
    }
}
