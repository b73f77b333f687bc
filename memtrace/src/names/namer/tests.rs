//! With a thread in place of the process, which ends in the middle of some files.

use std::{io, os::unix::net::UnixStream, process::Child};

use super::*;
use crate::{
    file,
    names::{line::Line, process::State},
};

/// This program, as a file that has names.
const OWN: &str = "/proc/self/exe";

/// An address in it.
fn place() -> Place {
    let maps = crate::process::maps::read(std::process::id()).unwrap();
    let here = a_function as fn() as usize as u64;
    let mapping = maps.iter().find(|of| (of.start..of.end).contains(&here));
    let mapping = mapping.unwrap();
    Place::FileOffset(here - mapping.start + mapping.file_offset)
}

#[inline(never)]
fn a_function() {
    std::hint::black_box("a function of its own");
}

/// Serves, and ends when it has to read
/// - `bomb`,
/// - the debug information of `bomb in full`,
/// - `heavy` together with anything else.
fn fragile(line: UnixStream) -> io::Result<Option<Child>> {
    std::thread::spawn(move || {
        let mut line = Line::new(line);
        let mut state = State::default();
        let mut count = 0;
        while let Ok(Some(request)) = line.receive() {
            if let Request::Module { path, detail, .. } = &request {
                count += 1;
                let is_too_much = match &**path {
                    "bomb" => true,
                    "bomb in full" => *detail == Detail::Full,
                    "heavy" => count > 1,
                    _ => false,
                };
                if is_too_much {
                    return;
                }
            }
            if state.answer(request, &mut line).is_err() {
                return;
            }
        }
    });
    Ok(None)
}

fn namer() -> Namer {
    Namer {
        spawn: fragile,
        ..Namer::awaited(Duration::from_secs(60))
    }
}

fn add(namer: &mut Namer, path: &str) -> ModuleKey {
    namer.add(path.to_owned(), File::open(OWN).unwrap(), None, None)
}

fn named(namer: &mut Namer, key: ModuleKey) -> Named {
    let mut all = Vec::new();
    assert!(namer.name(key, &[place(), place()], |named| all.push(named)));
    assert_eq!(all.len(), 2);
    all.pop().unwrap()
}

fn is_whole(named: &Named) -> bool {
    let function = named
        .frames
        .last()
        .and_then(|frame| frame.function.as_deref());
    let line = named.frames.last().and_then(|frame| frame.line);
    function.is_some_and(|name| name.contains("a_function")) && line.is_some() && !named.is_cut
}

#[test]
fn a_file_that_ends_the_process_takes_no_names_from_others() {
    let mut namer = namer();
    let good = add(&mut namer, "good");
    assert!(is_whole(&named(&mut namer, good)));
    let bomb = add(&mut namer, "bomb");
    let frames = named(&mut namer, bomb);
    assert!(frames.is_cut);
    let frame = &frames.frames[0];
    assert_eq!(frame.module.as_deref(), Some("bomb"));
    let why = frame.unresolved.as_ref().map(|why| &why.cause);
    assert_eq!(why, Some(&Cause::NamesBudget));
    assert!(is_whole(&named(&mut namer, good)));
}

#[test]
fn a_file_that_is_too_much_in_full_has_its_symbols() {
    let mut namer = namer();
    let bomb = add(&mut namer, "bomb in full");
    let frames = named(&mut namer, bomb);
    let frame = &frames.frames[0];
    assert!(frame.function.as_ref().unwrap().contains("a_function"));
    assert_eq!((frame.line, frames.is_cut), (None, true));
}

#[test]
fn a_file_that_needs_the_process_for_itself_gets_it() {
    let mut namer = namer();
    let good = add(&mut namer, "good");
    let heavy = add(&mut namer, "heavy");
    for key in [good, heavy, good, heavy] {
        assert!(is_whole(&named(&mut namer, key)));
    }
}

#[test]
fn nothing_is_started_before_a_name_is_wanted() {
    let mut namer = Namer {
        spawn: |_| Err(io::ErrorKind::Other.into()),
        ..namer()
    };
    let key = add(&mut namer, "good");
    assert!(namer.name(key, &[], |_| {}));
    // And without it there are no names, but nothing fails.
    assert!(!namer.name(key, &[place()], |_| {}));
}

#[test]
fn a_process_that_does_not_answer_is_given_up() {
    let mut namer = Namer {
        // Nobody reads, but the line stays.
        spawn: |line| {
            std::mem::forget(line);
            Ok(None)
        },
        ..Namer::awaited(Duration::from_millis(10))
    };
    let file = file::of_bytes(b"text").unwrap();
    let key = namer.add("m".to_owned(), file, None, None);
    assert!(!namer.name(key, &[place()], |_| {}));
}

#[test]
fn names_are_demangled_until_that_takes_too_long() {
    let names = || vec!["_Znwm".to_owned(), "main".to_owned()];
    assert_eq!(
        namer().demangle(names()),
        ["operator new(unsigned long)", "main"]
    );
    let mut late = Namer::awaited(Duration::ZERO);
    assert_eq!(late.demangle(names()), names());
}
